"""The command line: ``entrepot SUBCOMMAND ...``.

Subcommands live in one module per group; other packages add theirs through the entry-point group ``entrepot.cli`` (each
entry names a function that takes the subparsers action and adds to it). An error of this package is printed as one line
on standard error, with exit code 1; bad usage is exit code 2.
"""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Callable, Sequence
from importlib import metadata
from typing import TYPE_CHECKING, Any, TextIO, cast

from entrepot._cli import doctor, explaining
from entrepot.errors import EntrepotError
from entrepot.platform_support import require_supported, unsupported_reason

if TYPE_CHECKING:
    from entrepot._cli.common import SubParsers

ENTRY_POINT_GROUP = "entrepot.cli"


class _Parser(argparse.ArgumentParser):
    """A parser that refuses unknown arguments itself, so that the usage shown is that of the subcommand."""

    def parse_known_args(  # pyright: ignore[reportIncompatibleMethodOverride]: overloaded there
        self, args: Any = None, namespace: Any = None
    ) -> Any:
        """As the base class, but without arguments left over."""
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return parsed, unknown


def _version() -> str:
    try:
        return metadata.version("entrepot")
    except metadata.PackageNotFoundError:  # from a clone, on a system for which it cannot be built and installed
        return "not installed"


def _new_parser() -> tuple[argparse.ArgumentParser, SubParsers]:
    parser = cast(
        "argparse.ArgumentParser",  # also for its subparsers, whose type depends on it
        _Parser(prog="entrepot", description="Pass large data between tasks by object ID."),
    )
    parser.add_argument("--version", action="version", version=f"entrepot {_version()}")
    return parser, parser.add_subparsers(dest="subcommand", metavar="SUBCOMMAND", required=True)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser with all subcommands."""
    # Here, because they load the extension.
    from entrepot._cli import comparing, completion, daemon, evicting, objects, sessions

    parser, subparsers = _new_parser()
    for add_subcommands in (
        daemon.add_subcommands,
        objects.add_subcommands,
        evicting.add_subcommands,
        sessions.add_subcommands,
        doctor.add_subcommands,
        explaining.add_subcommands,
    ):
        add_subcommands(subparsers)
    comparing.add_subcommands(subparsers, objects.resolve_object)
    completion.add_subcommands(subparsers, build_parser)
    for entry in metadata.entry_points(group=ENTRY_POINT_GROUP):
        cast("Callable[[SubParsers], None]", entry.load())(subparsers)
    return parser


def _parser_elsewhere(words: Sequence[str]) -> argparse.ArgumentParser:
    """The parser on an operating system without stores, where only the doctor has anything to say."""
    if words and words[0] not in ("doctor", "-h", "--help", "--version"):
        require_supported()
    parser, subparsers = _new_parser()
    doctor.add_subcommands(subparsers)
    return parser


def _escape_unprintable(stream: TextIO) -> None:
    """Write characters that a stream's encoding lacks as escapes: names may have any, and a terminal may have ASCII."""
    if isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
        stream.reconfigure(errors="backslashreplace")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; return the exit code."""
    _escape_unprintable(sys.stdout)
    try:
        if unsupported_reason() is None:
            parser = build_parser()
        else:
            parser = _parser_elsewhere(sys.argv[1:] if argv is None else argv)
        arguments = parser.parse_args(argv)
        code: int = arguments.run(arguments)
    except EntrepotError as error:
        print(f"entrepot: {error!s}", file=sys.stderr)  # with its short code
        return 1
    except BrokenPipeError:
        sys.stderr.close()  # stdout's reader is gone; keeps Python from complaining at exit
        return 1
    except KeyboardInterrupt:
        return 130
    return code


if __name__ == "__main__":
    sys.exit(main())
