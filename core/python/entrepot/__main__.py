"""``python -m entrepot`` does the same as the command ``entrepot``."""

from __future__ import annotations

import sys

from entrepot.cli import main

if __name__ == "__main__":
    sys.exit(main())
