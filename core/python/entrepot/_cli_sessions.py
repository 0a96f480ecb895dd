"""Subcommands about sessions and leftovers: sessions, gc."""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from entrepot import _garbage
from entrepot._cli_common import age, connect, human_bytes, table
from entrepot.ended_runs import host_of, providers
from entrepot.errors import InvalidArgument, ObjectNotFound, StoreUnavailable

if TYPE_CHECKING:
    from entrepot._cli_common import SubParsers
    from entrepot._garbage import Found, Garbage
    from entrepot._store import Store

DAY_SECONDS = 86400.0


def add_verbs(verbs: SubParsers) -> None:
    """Add the subcommands of this module."""
    sessions = verbs.add_parser(
        "sessions", help="list the sessions of all scopes; remove one, or say how long it lives"
    )
    _add_options(sessions, None)
    sessions.add_argument("--json", action="store_true", help="as JSON, one list")
    sessions.set_defaults(run=run_sessions)
    actions = sessions.add_subparsers(metavar="ACTION")
    remove = actions.add_parser("rm", help="remove sessions with all that is in them")
    _add_options(remove, argparse.SUPPRESS)
    remove.add_argument("names", nargs="+", metavar="NAME", help="of the session")
    remove.add_argument("--force", action="store_true", help="also one that a process has open")
    remove.set_defaults(run=run_rm)
    ttl = actions.add_parser("ttl", help="set how long a session lives after its last use")
    _add_options(ttl, argparse.SUPPRESS)
    ttl.add_argument("name", metavar="NAME", help="of the session")
    ttl.add_argument("seconds", type=float, metavar="SECONDS", help="from now on, and after each use; 0: for ever")
    ttl.set_defaults(run=run_ttl)

    gc = verbs.add_parser("gc", help="remove what runs that ended and stores that died left behind")
    gc.add_argument("--address", help="unix:///path of the store (default: ENTREPOT_ADDRESS, or the private store)")
    gc.add_argument("-n", "--dry-run", action="store_true", help="say what would be removed, and why; remove nothing")
    gc.add_argument("--json", action="store_true", help="as JSON")
    gc.add_argument(
        "--older-than", type=float, default=DAY_SECONDS, metavar="SECONDS",
        help="how long a dead store's spill folder has to lie untouched (default: a day); a store that starts at its "
        "address before takes it over",
    )  # fmt: skip
    gc.set_defaults(run=run_gc)


def _add_options(parser: argparse.ArgumentParser, default: Any) -> None:
    parser.add_argument(
        "--address", default=default, help="unix:///path of the store (default: ENTREPOT_ADDRESS, or the private store)"
    )
    parser.add_argument("--scope", default=default, help="those of one scope (default: of all)")


def look_at(address: str | None) -> Store:
    """Connect for inspecting all sessions, through a session that always exists and never expires.

    Raises:
        StoreUnavailable: no store listens at the address.
    """
    return connect(argparse.Namespace(address=address, scope="default", session=""))


def run_sessions(arguments: argparse.Namespace) -> int:
    """``entrepot sessions``."""
    with look_at(arguments.address) as store:
        found = _of_scope(_garbage.sessions(store), arguments.scope)
    known = providers()
    for one in found:
        one["owner"] = host_of(one["session"], known) or ""
    if arguments.json:
        print(json.dumps(found, indent=2))
        return 0
    rows = [
        [
            one["scope"],
            one["session"] or "(the scope's own)",
            human_bytes(one["nbytes"]),
            str(one["objects"]),
            one["owner"],
            age(one["created_unix_ns"] / 1e9),
            age(one["last_used_unix_ns"] / 1e9),
            f"{one['ttl_seconds']} s" if one["ttl_seconds"] else "for ever",
            str(one["opened_by"]),
        ]
        for one in found
    ]
    print(table(rows, ["scope", "session", "bytes", "objects", "owner", "age", "last use", "lives", "open"]))
    return 0


def run_rm(arguments: argparse.Namespace) -> int:
    """``entrepot sessions rm``."""
    with look_at(arguments.address) as store:
        known = _garbage.sessions(store)
        for name in arguments.names:
            one = _one(known, arguments.scope, name)
            if arguments.force:
                store._raw().remove_session(one["scope"], name)  # pyright: ignore[reportPrivateUsage]
            elif stays := _garbage.remove_session(store, one["scope"], name):
                raise InvalidArgument(f"session {name!r} stays: {stays}; --force removes it all the same")
            print(f"{name}: {human_bytes(one['nbytes'])} in {one['objects']} objects removed")
    return 0


def run_ttl(arguments: argparse.Namespace) -> int:
    """``entrepot sessions ttl``."""
    if not (math.isfinite(arguments.seconds) and arguments.seconds >= 0):
        raise InvalidArgument(f"a time to live is a number of seconds, 0 or more, but got {arguments.seconds}")
    with look_at(arguments.address) as store:
        one = _one(_garbage.sessions(store), arguments.scope, arguments.name)
        limits = (math.ceil(arguments.seconds), one["limit_bytes"], one["limit_objects"])
        raw = store._raw()  # pyright: ignore[reportPrivateUsage]
        raw.open_session(one["scope"], arguments.name, limits)
        raw.close_session(one["scope"], arguments.name)
    return 0


def run_gc(arguments: argparse.Namespace) -> int:
    """``entrepot gc``; exit code 1 if there were errors or something was not removed."""
    try:
        store: Store | None = look_at(arguments.address)
    except StoreUnavailable as error:
        if arguments.address is not None:
            raise
        print(f"entrepot: {error}; only sockets and folders are looked at", file=sys.stderr)
        store = None
    try:
        return _collect(store, arguments)
    finally:
        if store is not None:
            store.close()


def _collect(store: Store | None, arguments: argparse.Namespace) -> int:
    folders: list[Path] = []
    found: list[Found] = []
    if store is not None:
        found.append(_garbage.in_store(store))
        folders = [Path(one).parent for one in store.status()["spill"].get("folders", [])]
    found.append(_garbage.on_disk(folders, arguments.older_than))
    garbage = [one for part in found for one in part.garbage]
    problems = [one for part in found for one in part.problems]
    removed: list[Garbage] = []
    for one in garbage:
        stays = "" if arguments.dry_run else _garbage.remove(store, one)
        if stays:
            problems.append(f"{_name(one)} stays: {stays}")
        else:
            removed.append(one)
    if arguments.json:
        told = [
            {"kind": one.kind, "name": _name(one), "why": one.why, "nbytes": one.nbytes, "objects": one.objects}
            for one in removed
        ]
        print(json.dumps({"dry_run": arguments.dry_run, "removed": told, "problems": problems}, indent=2))
    else:
        rows = [[one.kind, _name(one), human_bytes(one.nbytes), one.why] for one in removed]
        if rows:
            print(table(rows, ["kind", "what", "bytes", "why"]))
        verb = "would be removed" if arguments.dry_run else "removed"
        asked = "; ".join(said for part in found if (said := str(part.asked)))
        if asked:
            print(asked)
        print(f"{len(rows)} {verb}, {human_bytes(sum(one.nbytes for one in removed))}")
        for problem in problems:
            print(f"entrepot: {problem}", file=sys.stderr)
    return 1 if problems else 0


def _name(one: Garbage) -> str:
    return f"{one.name[1]} ({one.name[0]})" if isinstance(one.name, tuple) else str(one.name)


def _of_scope(found: list[dict[str, Any]], scope: str | None) -> list[dict[str, Any]]:
    return [one for one in found if scope is None or one["scope"] == scope]


def _one(known: list[dict[str, Any]], scope: str | None, name: str) -> dict[str, Any]:
    found = [one for one in _of_scope(known, scope) if one["session"] == name]
    where = "" if scope is None else f" in scope {scope!r}"
    if not found:
        raise ObjectNotFound(f"there is no session {name!r}{where}: 'entrepot sessions' lists them")
    if len(found) > 1:
        scopes = ", ".join(repr(one["scope"]) for one in found)
        raise InvalidArgument(f"several scopes have a session {name!r}: say which with --scope ({scopes})")
    return found[0]
