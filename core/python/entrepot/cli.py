"""The command line: ``entrepot VERB ...``.

Subcommands live in one module per group; other packages add theirs through the entry-point group ``entrepot.cli`` (each
entry names a function that takes the subparsers action and adds to it). An error of this package is printed as one line
on standard error, with exit code 1; bad usage is exit code 2.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from importlib import metadata
from typing import TYPE_CHECKING, cast

from entrepot import _cli_daemon, _cli_objects, _cli_sessions, _doctor
from entrepot.errors import EntrepotError

if TYPE_CHECKING:
    from entrepot._cli_common import SubParsers

ENTRY_POINT_GROUP = "entrepot.cli"


def build_parser() -> argparse.ArgumentParser:
    """Return the parser with all subcommands."""
    parser = argparse.ArgumentParser(prog="entrepot", description="Hand large data from task to task by object ID.")
    parser.add_argument("--version", action="version", version=f"entrepot {metadata.version('entrepot')}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for add in (_cli_daemon.add_verbs, _cli_objects.add_verbs, _cli_sessions.add_verbs, _doctor.add_verbs):
        add(verbs)
    for entry in metadata.entry_points(group=ENTRY_POINT_GROUP):
        cast("Callable[[SubParsers], None]", entry.load())(verbs)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; return the exit code."""
    arguments = build_parser().parse_args(argv)
    try:
        code: int = arguments.run(arguments)
    except EntrepotError as error:
        print(f"entrepot: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        sys.stderr.close()  # stdout's reader is gone; keeps Python from complaining at exit
        return 1
    except KeyboardInterrupt:
        return 130
    return code


if __name__ == "__main__":
    sys.exit(main())
