"""``python -m examples.workflows``."""

import sys

from examples.workflows.demo import main

sys.exit(main())
