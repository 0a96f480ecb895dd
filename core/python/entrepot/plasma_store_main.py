"""Console script ``entrepot-plasma-store``: executes the front end for Plasma clients that is shipped with the package.

Without ``--address`` it serves the store that ``entrepot.connect()`` would use, and starts it if it is the private one.
"""

from __future__ import annotations

import os
import sys

from entrepot._daemon.launcher import ensure_running
from entrepot._daemon.plasma_front_end import front_end_binary
from entrepot._daemon.settings import resolve
from entrepot.errors import EntrepotError

_WITHOUT_STORE = {"--help", "--version"}


def main() -> int:
    """Replace this process with ``entrepot-plasma-store``, passing on the arguments."""
    arguments = sys.argv[1:]
    try:
        binary = str(front_end_binary())
        if not any(argument.startswith("--address") or argument in _WITHOUT_STORE for argument in arguments):
            settings = resolve(None)
            ensure_running(settings)
            arguments = ["--address", settings.address, *arguments]
        os.execv(binary, [binary, *arguments])
    except (EntrepotError, OSError) as error:
        print(f"entrepot-plasma-store: {error!s}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
