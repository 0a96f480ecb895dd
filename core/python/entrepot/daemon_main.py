"""The console script ``entrepotd``: becomes the daemon that the package ships."""

from __future__ import annotations

import os
import sys

from entrepot._launcher import daemon_binary
from entrepot.errors import StoreUnavailable


def main() -> int:
    """Replace this process by ``entrepotd`` with the same arguments."""
    try:
        binary = str(daemon_binary())
        os.execv(binary, [binary, *sys.argv[1:]])
    except (StoreUnavailable, OSError) as error:
        print(f"entrepotd: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
