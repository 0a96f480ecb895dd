"""``python -m examples.failover``."""

import sys

from examples.failover.demo import main

sys.exit(main())
