"""Subcommands about the daemon: start, stop, upgrade, status, logs."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

from entrepot import _launcher
from entrepot._cli_common import add_connection_options, connect, human_bytes, table
from entrepot._settings import resolve
from entrepot._store_checkpoints import flushes
from entrepot.errors import StoreUnavailable, VersionMismatch

if TYPE_CHECKING:
    from entrepot._cli_common import SubParsers
    from entrepot._store import Store


def add_verbs(verbs: SubParsers) -> None:
    """Add the subcommands of this module."""
    start = verbs.add_parser("start", help="start a store in the background")
    add_connection_options(start)
    start.add_argument("--size", help="capacity, such as 4GiB (default: a share of memory)")
    start.add_argument("--idle-exit", type=int, default=0, metavar="SECONDS", help="end after being idle; 0: never")
    start.add_argument("--log-file", type=Path, help="log file (default: the user's state folder)")
    start.add_argument("--config", type=Path, help="configuration file of the daemon")
    start.set_defaults(run=run_start)

    stop = verbs.add_parser("stop", help="end the store; its objects go with it, but for those of durable sessions")
    add_connection_options(stop)
    stop.add_argument("--no-flush", action="store_true", help="do not first write what durable sessions hold")
    stop.set_defaults(run=run_stop)

    upgrade = verbs.add_parser(
        "upgrade", help="have this installation's daemon take over a running store, with all that is in it"
    )
    add_connection_options(upgrade)
    upgrade.add_argument("--program", type=Path, help="another entrepotd than this installation's")
    upgrade.set_defaults(run=run_upgrade)

    status = verbs.add_parser("status", help="capacity, use, clients")
    add_connection_options(status)
    status.add_argument("--json", action="store_true", help="everything, as JSON")
    status.add_argument(
        "--wait-provisioned", type=float, metavar="SECONDS", help="first wait until the warm memory asked for is there"
    )
    status.set_defaults(run=run_status)

    logs = verbs.add_parser("logs", help="the log of the store in the background")
    logs.add_argument("-n", "--lines", type=int, default=50, help="how many lines from the end (default 50)")
    logs.add_argument("-f", "--follow", action="store_true", help="go on printing what is added")
    logs.add_argument("--log-file", type=Path, help="the log, if it was started with --log-file")
    logs.set_defaults(run=run_logs)


def run_start(arguments: argparse.Namespace) -> int:
    """``entrepot start``."""
    settings = resolve(arguments.address, session=arguments.session, scope=arguments.scope)
    if _launcher.answers(settings.address):
        print(f"a store listens at {settings.address} already")
        return 0
    extra = ("--config", str(arguments.config.resolve())) if arguments.config else ()
    _launcher.start(
        settings.address,
        size=arguments.size or settings.private_size,
        idle_exit_seconds=arguments.idle_exit,
        log=(arguments.log_file or _launcher.log_path()).resolve(),
        extra=extra,
    )
    print(f"store at {settings.address}")
    return 0


def run_stop(arguments: argparse.Namespace) -> int:
    """``entrepot stop``."""
    try:
        with connect(arguments) as store:
            if not arguments.no_flush:
                _flush(store)
            status = store.status()
            address = store.address
    except VersionMismatch:
        return _stop_listeners(arguments, ", of another version,")
    except StoreUnavailable:
        if _launcher.answers(resolve(arguments.address).address):
            raise
        # Its socket file may be gone, and the store may be unable to recreate it.
        if not _launcher.listeners(resolve(arguments.address).address):
            raise
        return _stop_listeners(arguments, ", whose socket was removed,")
    objects = int(status["objects"])
    if not _launcher.stop(int(status["keeper_pid"])):
        processes = [int(status["keeper_pid"]), int(status["pid"])]
        raise StoreUnavailable(
            f"the store at {address} (process {status['keeper_pid']}) did not end within 20 s"
            f"{_launcher.stopped(processes)}"
        )
    print(f"store at {address} ended, {objects} objects went with it")
    return 0


def _flush(store: Store) -> None:
    """Write whatever the durable tiers still lack, whoever put it; on an error the store keeps running."""
    for name, flush in flushes(store):
        count = flush()
        print(f"{name}: {count} objects are in the durable tier")


def _stop_listeners(arguments: argparse.Namespace, which: str) -> int:
    """End a store that cannot be talked to, by terminating the processes that listen at its address."""
    address = resolve(arguments.address).address
    processes = _launcher.listeners(address)
    if not processes:
        raise StoreUnavailable(
            f"the store at {address}{which} has to be ended, but none of this user's processes listens there: "
            "end it where it was started"
        )
    left = [process for process in processes if not _launcher.stop(process)]
    if left:
        raise StoreUnavailable(
            f"the store at {address} did not end within 20 s: processes {left} are still there{_launcher.stopped(left)}"
        )
    print(f"store at {address}{which} ended with all objects in it")
    return 0


def run_upgrade(arguments: argparse.Namespace) -> int:
    """``entrepot upgrade``."""
    program = str((arguments.program or _launcher.daemon_binary()).resolve())
    try:
        with connect(arguments) as store:
            before = store.status()
            store._raw().upgrade(program)  # pyright: ignore[reportPrivateUsage]
    except VersionMismatch as error:
        raise VersionMismatch(
            f"{error} Versions that do not talk to each other are upgraded from the older one: run its `entrepot "
            f"upgrade --program {program}`, or install in place and send the daemon SIGUSR2."
        ) from error
    with connect(arguments) as store:
        after = store.status()
    if os.path.realpath(after["program"]) != program:
        raise StoreUnavailable(
            f"{program} took over and its daemon ended at once, so that the store went back to {after['program']}; "
            "nothing is lost, and the log (`entrepot logs`) says why it ended"
        )
    print(
        f"store at {store.address}: version {before['version']} (daemon {before['pid']}) is now version "
        f"{after['version']} (daemon {after['pid']}), with {after['objects']} objects"
    )
    return 0


def run_status(arguments: argparse.Namespace) -> int:
    """``entrepot status``."""
    with connect(arguments) as store:
        if arguments.wait_provisioned is not None:
            store.wait_provisioned(arguments.wait_provisioned)
        status = store.status()
    print(json.dumps(status, indent=2) if arguments.json else describe(status))
    return 0


def describe(status: dict[str, Any]) -> str:
    """Format the status for people."""
    lines = [
        f"store      {status['instance']} on {status['host']}, version {status['version']}, "
        f"daemon {status['pid']}, keeper {status['keeper_pid']}, up {int(status['uptime_seconds'])} s",
        f"capacity   {human_bytes(status['capacity_bytes'])}: used {human_bytes(status['used_bytes'])}, "
        f"pinned {human_bytes(status['pinned_bytes'])}, leased {human_bytes(status['leased_bytes'])}, "
        f"warm {human_bytes(status['warm_bytes'])}{'' if status['provisioned'] else ' (provisioning)'}",
        f"objects    {status['objects']} in {status['sessions']} sessions, "
        f"{status['names']} names, {status['deferred_frees']} deleted but still read",
    ]
    budget = status["budget"]
    parts = [f"{name.replace('_', ' ')} {human_bytes(taken)}" for name, taken in budget["items"].items() if taken]
    lines.append(
        f"memory     {human_bytes(budget['granted_bytes'])} taken, {human_bytes(budget['free_bytes'])} free: "
        f"{', '.join(parts)}"
    )
    if status["drops"]:
        lines.append(
            f"dropped    {status['drops']} objects of {human_bytes(status['drops_bytes'])} that can be made again, "
            f"{status['dropped']} of which nobody has made again yet"
        )
    if status["follows_killed_store"]:
        lines.append("note       the store that was here before was killed: what had no copy on disk is lost")
    if dropped := status["log_lines_dropped"] + status["keeper_log_lines_dropped"]:
        lines.append(f"note       {dropped} lines of the log were dropped: see docs/daemon.md, Log")
    if status["clients"]:
        rows = [
            [str(one["pid"]), str(one["label"]), str(one["pins"]), human_bytes(one["leased_bytes"]), _link(one)]
            for one in status["clients"]
        ]
        lines.append(table(rows, ["pid", "client", "pins", "leased", "connected"]))
    return "\n".join(lines)


def _link(client: dict[str, Any]) -> str:
    if client["connected"]:
        return f"for {int(client['connected_seconds'])} s"
    return "no: its pins and leases wait for it" if client["quarantined"] else "no"


def run_logs(arguments: argparse.Namespace) -> int:
    """``entrepot logs``."""
    path: Path = arguments.log_file or _launcher.log_path()
    if not path.is_file():
        raise StoreUnavailable(f"there is no log at {path}: no store was started in the background here")
    with path.open(encoding="utf-8", errors="replace") as file:
        sys.stdout.writelines(deque(file, maxlen=max(arguments.lines, 0)))
        while arguments.follow:
            line = file.readline()
            if line:
                sys.stdout.write(line)
                sys.stdout.flush()
            else:
                time.sleep(0.2)
    return 0
