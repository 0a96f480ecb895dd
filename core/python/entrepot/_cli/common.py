"""Helpers shared by several subcommands of the command line."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from typing import TYPE_CHECKING, Any

from entrepot._cli.styles import is_styled, style_table
from entrepot._daemon import kubernetes_env
from entrepot._daemon.launcher import is_forbidden, is_listening
from entrepot._daemon.settings import resolve, socket_path
from entrepot._daemon.units import parse_duration, parse_size
from entrepot.errors import InvalidArgument, ObjectNotFound, StoreUnavailable
from entrepot.phrases import age as age
from entrepot.phrases import escape_unprintable
from entrepot.phrases import human_bytes as human_bytes
from entrepot.phrases import printable as printable

if TYPE_CHECKING:
    from entrepot._store.store import Store

    SubParsers = argparse._SubParsersAction[argparse.ArgumentParser]


MIN_CUT_WIDTH = 16  # cells up to here are never cut


def add_connection_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--address``, ``--scope`` and ``--session``."""
    parser.add_argument("--address", help="unix:///path of the store (default: ENTREPOT_ADDRESS, or the private store)")
    parser.add_argument("--scope", help="scope (default: ENTREPOT_SCOPE, or 'default')")
    parser.add_argument("--session", help="session in the scope (default: ENTREPOT_SESSION, else the scope's own)")


def duration_option(text: str) -> float:
    """Parse the value of an option, for argparse: a duration, such as ``15min``."""
    try:
        return parse_duration(text)
    except InvalidArgument as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def positive_option(text: str) -> int:
    """Parse the value of an option, for argparse: a whole number of at least 1."""
    if not (text.isascii() and text.isdecimal()) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, not {text!r}")
    return int(text)


def size_option(text: str) -> str:
    """Check the value of an option, for argparse: a size, such as ``4GiB``."""
    try:
        parse_size(text)
    except InvalidArgument as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def connect(arguments: argparse.Namespace, *, create_session: bool = False, allow_pickle: bool | None = None) -> Store:
    """Connect to the store; never start one.

    Args:
        arguments: with ``address``, and ``session`` and ``scope`` if the subcommand has them.
        create_session: whether to create the session if it does not exist, as commands that write do. A durable one
            may exist in its durable tier only, so it is opened in any case.
        allow_pickle: as ``entrepot.connect``.

    Raises:
        StoreUnavailable: no store listens at the address.
        AccessDenied: the store belongs to another user.
        ObjectNotFound: there is no such session.
    """
    settings = resolve(
        arguments.address, session=getattr(arguments, "session", ""), scope=getattr(arguments, "scope", None)
    )
    # Where it is forbidden, connecting says why.
    if not is_listening(settings.address) and not is_forbidden(settings.address):
        if kubernetes_env.in_pod():
            if not settings.configured:
                raise StoreUnavailable(kubernetes_env.explain_not_configured())
            reason = kubernetes_env.explain_not_answering(socket_path(settings.address))
            raise StoreUnavailable(f"no store listens at {settings.address}: {reason}")
        option = f" --address {settings.address}" if settings.configured else ""
        raise StoreUnavailable(f"no store listens at {settings.address}: start one with 'entrepot start{option}'")
    from entrepot._store import connection  # here, because it loads the extension

    if settings.session and settings.durable is None and not create_session:
        with connection.connect(settings.address, session="", scope="default", durable=False) as store:
            _check_session(store, settings.scope, settings.session)
    return connection.connect(
        settings.address, session=settings.session, scope=settings.scope, allow_pickle=allow_pickle
    )


def connect_for_inspection(address: str | None) -> Store:
    """Connect for what concerns the whole store, through a session that always exists and never expires.

    Raises:
        StoreUnavailable: no store listens at the address.
        AccessDenied: the store belongs to another user.
    """
    return connect(argparse.Namespace(address=address, scope="default", session=""))


def _check_session(store: Store, scope: str, name: str) -> None:
    from entrepot._client.queries import session_records  # here, because it loads the extension

    records = session_records(store._raw())  # pyright: ignore[reportPrivateUsage]
    scopes: list[str] = [record["scope"] for record in records if record["session"] == name]
    if scope not in scopes:
        elsewhere = f" (but in {', '.join(map(repr, scopes))})" if scopes else ""
        raise ObjectNotFound(
            f"no session {name!r} in scope {scope!r}{elsewhere}: run 'entrepot sessions' to list them; writing to a "
            "session creates it"
        )


def printable_json(value: Any) -> str:
    """Return the value as JSON that is readable, with only unprintable characters escaped."""
    return escape_unprintable(json.dumps(value, ensure_ascii=False))


def table(rows: list[list[str]], header: list[str]) -> str:
    """Format rows as text columns, each as wide as its widest cell; unprintable characters are escaped.

    If standard output is a terminal and too narrow, the widest cells, except IDs, are cut.
    """
    lines = [header, *([printable(cell) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    if sys.stdout.isatty():
        widths = _fitted(widths, header, shutil.get_terminal_size().columns)
    cells = [[_cut(cell, width).ljust(width) for cell, width in zip(line, widths, strict=True)] for line in lines]
    if is_styled():
        return style_table(cells[0], header, cells[1:])
    return "\n".join("  ".join(line).rstrip() for line in cells)


def _fitted(widths: list[int], header: list[str], columns: int) -> list[int]:
    """Return the widths, the largest ones reduced (but not below a minimum) as far as the columns require."""
    fitted = list(widths)
    candidates = [column for column, title in enumerate(header) if title != "id"]
    for _ in range(max(0, sum(widths) + 2 * (len(widths) - 1) - columns)):
        widest = max(candidates, key=lambda column: fitted[column])
        if fitted[widest] <= MIN_CUT_WIDTH:
            break
        fitted[widest] -= 1
    return fitted


def _cut(cell: str, width: int) -> str:
    return cell if len(cell) <= width else cell[: width - 1] + "…"


def to_json_value(value: Any) -> Any:
    """Convert dataclasses and IDs into values that JSON can represent."""
    from dataclasses import asdict, is_dataclass

    from entrepot.ids import ObjectID

    if isinstance(value, ObjectID):
        return str(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {key: to_json_value(item) for key, item in asdict(value).items()}
    if isinstance(value, dict):
        return {str(key): to_json_value(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json_value(item) for item in value]
    return value
