"""``python -m examples.kubernetes``."""

import sys

from examples.kubernetes.demo import main

sys.exit(main())
