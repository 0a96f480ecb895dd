"""``python -m examples.cluster``."""

import sys

from examples.cluster.demo import main

sys.exit(main())
