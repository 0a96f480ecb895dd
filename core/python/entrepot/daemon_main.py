"""Console script ``entrepotd``: executes the daemon binary shipped with the package."""

from __future__ import annotations

import os
import sys

from entrepot._daemon.launcher import daemon_binary
from entrepot.errors import StoreUnavailable


def main() -> int:
    """Replace this process with ``entrepotd``, passing on the arguments."""
    try:
        binary = str(daemon_binary())
        os.execv(binary, [binary, *sys.argv[1:]])
    except (StoreUnavailable, OSError) as error:
        print(f"entrepotd: {error!s}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
