"""Subcommands about sessions and leftovers: sessions, gc."""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from entrepot._cleanup import cleanup
from entrepot._cli.common import age, connect_for_inspection, duration_option, human_bytes, printable, table
from entrepot.ended_runs import orchestrator_of, providers
from entrepot.errors import InvalidArgument, ObjectNotFound, StoreUnavailable
from entrepot.phrases import count_of, duration

if TYPE_CHECKING:
    from entrepot._cleanup.cleanup import Garbage, SearchResult
    from entrepot._cli.common import SubParsers
    from entrepot._store.store import Store

DAY_SECONDS = 86400.0


def add_subcommands(subparsers: SubParsers) -> None:
    """Add the subcommands of this module."""
    sessions = subparsers.add_parser(
        "sessions", help="list the sessions of all scopes, remove sessions, or set their time to live"
    )
    _add_options(sessions, None)
    sessions.add_argument("--json", action="store_true", help="print a JSON list")
    sessions.set_defaults(run=run_sessions)
    actions = sessions.add_subparsers(metavar="ACTION")
    remove = actions.add_parser("rm", help="remove sessions and everything in them")
    _add_options(remove, argparse.SUPPRESS)
    remove.add_argument("names", nargs="+", metavar="NAME", help="name of a session")
    remove.add_argument("--force", action="store_true", help="also remove sessions that a process has open")
    remove.set_defaults(run=run_rm)
    ttl = actions.add_parser("ttl", help="set how long a session lives after its last use")
    _add_options(ttl, argparse.SUPPRESS)
    ttl.add_argument("name", metavar="NAME", help="name of the session")
    ttl.add_argument(
        "seconds",
        type=duration_option,
        metavar="TIME",
        help="from now and from each later use, such as 90s, 1h or 7d; 0: forever",
    )
    ttl.set_defaults(run=run_ttl)

    gc = subparsers.add_parser("gc", help="remove what ended runs and dead stores left behind")
    gc.add_argument("--address", help="unix:///path of the store (default: ENTREPOT_ADDRESS, or the private store)")
    gc.add_argument("-n", "--dry-run", action="store_true", help="only show what would be removed, and why")
    gc.add_argument("--json", action="store_true", help="print JSON")
    gc.add_argument(
        "--older-than", type=duration_option, default=DAY_SECONDS, metavar="TIME",
        help="remove a dead store's spill folder only if it was not written for this long (default: 1d); a store "
        "that starts at its address before then adopts the folder",
    )  # fmt: skip
    gc.set_defaults(run=run_gc)


def _add_options(parser: argparse.ArgumentParser, default: Any) -> None:
    parser.add_argument(
        "--address", default=default, help="unix:///path of the store (default: ENTREPOT_ADDRESS, or the private store)"
    )
    parser.add_argument("--scope", default=default, help="only sessions of this scope (default: all scopes)")


def run_sessions(arguments: argparse.Namespace) -> int:
    """``entrepot sessions``."""
    with connect_for_inspection(arguments.address) as store:
        sessions = _filter_by_scope(cleanup.list_sessions(store), arguments.scope)
        cleanup.add_inlined_bytes(store, sessions)
    orchestrators = providers()
    for session in sessions:
        session["owner"] = orchestrator_of(session["session"], orchestrators) or ""
    if arguments.json:
        print(json.dumps(sessions, indent=2))
        return 0
    rows = [
        [
            session["scope"],
            session["session"] or "(the scope's own)",
            human_bytes(session["nbytes"]),
            str(session["objects"]),
            session["owner"],
            age(session["created_unix_ns"] / 1e9),
            age(session["last_used_unix_ns"] / 1e9),
            duration(session["ttl_seconds"]) if session["ttl_seconds"] else "forever",
            str(session["opened_by"]),
        ]
        for session in sessions
    ]
    print(table(rows, ["scope", "session", "bytes", "objects", "owner", "age", "last use", "ttl", "open"]))
    return 0


def run_rm(arguments: argparse.Namespace) -> int:
    """``entrepot sessions rm``."""
    with connect_for_inspection(arguments.address) as store:
        sessions = cleanup.list_sessions(store)
        for name in arguments.names:
            session = _find_session(sessions, arguments.scope, name)
            cleanup.add_inlined_bytes(store, [session])
            if arguments.force:
                store._raw().remove_session(session["scope"], name)  # pyright: ignore[reportPrivateUsage]
            elif reason := cleanup.remove_session(store, session["scope"], name):
                raise InvalidArgument(f"session {name!r} was not removed: {reason}; use --force to remove it anyway")
            what = f"{human_bytes(session['nbytes'])} in {count_of(session['objects'], 'object')}"
            print(f"{printable(name)}: {what} removed")
    return 0


def run_ttl(arguments: argparse.Namespace) -> int:
    """``entrepot sessions ttl``."""
    with connect_for_inspection(arguments.address) as store:
        session = _find_session(cleanup.list_sessions(store), arguments.scope, arguments.name)
        limits = (math.ceil(arguments.seconds), session["limit_bytes"], session["limit_objects"])
        raw = store._raw()  # pyright: ignore[reportPrivateUsage]
        raw.open_session(session["scope"], arguments.name, limits)
        raw.close_session(session["scope"], arguments.name)
    lifetime = f"for {duration(limits[0])} after its last use" if limits[0] else "forever"
    print(f"{printable(arguments.name)}: is kept {lifetime}")
    return 0


def run_gc(arguments: argparse.Namespace) -> int:
    """``entrepot gc``; exit code 1 if there were errors or something was not removed."""
    try:
        store: Store | None = connect_for_inspection(arguments.address)
    except StoreUnavailable as error:
        if arguments.address is not None:
            raise
        print(f"entrepot: {error}; checking only sockets and folders", file=sys.stderr)
        store = None
    try:
        return _collect_garbage(store, arguments)
    finally:
        if store is not None:
            store.close()


def _collect_garbage(store: Store | None, arguments: argparse.Namespace) -> int:
    folders: list[Path] = []
    results: list[SearchResult] = []
    if store is not None:
        results.append(cleanup.find_in_store(store))
        folders = [Path(item).parent for item in store.status()["spill"].get("folders", [])]
    results.append(cleanup.find_on_disk(folders, arguments.older_than))
    garbage = [item for result in results for item in result.garbage]
    problems = [item for result in results for item in result.problems]
    removed: list[Garbage] = []
    for item in garbage:
        reason = "" if arguments.dry_run else cleanup.remove(store, item)
        if reason:
            problems.append(f"{_label(item)} was not removed: {reason}")
        else:
            removed.append(item)
    if arguments.json:
        removed_items = [
            {"kind": item.kind, "name": _label(item), "why": item.why, "nbytes": item.nbytes, "objects": item.objects}
            for item in removed
        ]
        print(json.dumps({"dry_run": arguments.dry_run, "removed": removed_items, "problems": problems}, indent=2))
    else:
        rows = [[item.kind, _label(item), human_bytes(item.nbytes), item.why] for item in removed]
        if rows:
            print(table(rows, ["kind", "what", "bytes", "why"]))
        outcome = "would be removed" if arguments.dry_run else "removed"
        checked_runs = "\n".join(text for result in results if (text := str(result.checked_runs)))
        if checked_runs:
            print(checked_runs)
        print(f"{len(rows)} {outcome}, {human_bytes(sum(item.nbytes for item in removed))}")
        for problem in problems:
            print(f"entrepot: {problem}", file=sys.stderr)
    return 1 if problems else 0


def _label(item: Garbage) -> str:
    return f"{item.name[1]} ({item.name[0]})" if isinstance(item.name, tuple) else str(item.name)


def _filter_by_scope(sessions: list[dict[str, Any]], scope: str | None) -> list[dict[str, Any]]:
    return [session for session in sessions if scope is None or session["scope"] == scope]


def _find_session(sessions: list[dict[str, Any]], scope: str | None, name: str) -> dict[str, Any]:
    matches = [session for session in _filter_by_scope(sessions, scope) if session["session"] == name]
    where = "" if scope is None else f" in scope {scope!r}"
    if not matches:
        raise ObjectNotFound(f"no session {name!r}{where}: run 'entrepot sessions' to list them")
    if len(matches) > 1:
        scopes = ", ".join(repr(session["scope"]) for session in matches)
        raise InvalidArgument(f"several scopes have a session {name!r}: choose one with --scope ({scopes})")
    return matches[0]
