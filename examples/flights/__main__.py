"""``python -m examples.flights``: the demo."""

import sys

from examples.flights.demo import main

if __name__ == "__main__":
    sys.exit(main())
