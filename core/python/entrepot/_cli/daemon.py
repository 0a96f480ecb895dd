"""Subcommands about the daemon: stop, upgrade, status, logs; start is in a module of its own."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

from entrepot._checkpoints.functions import checkpoint_function
from entrepot._cli import start
from entrepot._cli.common import (
    add_connection_options,
    connect_for_inspection,
    duration_option,
    human_bytes,
    printable,
    table,
)
from entrepot._cli.streams import stream_table
from entrepot._cli.styles import style_labels
from entrepot._daemon import launcher
from entrepot._daemon.gateway_process import end_gateways
from entrepot._daemon.plasma_front_end import end_front_ends
from entrepot._daemon.settings import resolve
from entrepot.durable import durable_config
from entrepot.errors import InvalidArgument, StoreUnavailable, VersionMismatch
from entrepot.phrases import count_of, session_phrase

if TYPE_CHECKING:
    from entrepot._cli.common import SubParsers
    from entrepot._store.store import Store

HANDOVER_SECONDS = 30.0  # for a successor to answer


def add_subcommands(subparsers: SubParsers) -> None:
    """Add the subcommands of this module."""
    start.add_subcommand(subparsers)

    stop = subparsers.add_parser(
        "stop", help="stop the store and discard its objects, except those of durable sessions"
    )
    add_connection_options(stop)
    stop.add_argument("--no-flush", action="store_true", help="do not write the objects of durable sessions first")
    stop.set_defaults(run=run_stop)

    upgrade = subparsers.add_parser(
        "upgrade", help="replace a running store's daemon with this installation's, keeping all objects"
    )
    add_connection_options(upgrade)
    upgrade.add_argument("--program", type=Path, help="the entrepotd to run instead of this installation's")
    upgrade.set_defaults(run=run_upgrade)

    status = subparsers.add_parser("status", help="show capacity, usage and clients")
    add_connection_options(status)
    status.add_argument("--json", action="store_true", help="print everything as JSON")
    status.add_argument(
        "--wait-provisioned",
        type=duration_option,
        metavar="TIME",
        help="first wait until the requested memory is warm, for at most so long, such as 90s",
    )
    status.set_defaults(run=run_status)

    logs = subparsers.add_parser("logs", help="show the log of a store, if it is in a file")
    logs.add_argument("--address", help="unix:///path of the store (default: ENTREPOT_ADDRESS, or the private store)")
    logs.add_argument(
        "-n", "--lines", type=_line_count, default=50, help="number of lines to show, from the end (default: 50)"
    )
    logs.add_argument("-f", "--follow", action="store_true", help="keep printing new lines")
    logs.add_argument("--log-file", type=Path, help="the log file (default: that of the store at the address)")
    logs.set_defaults(run=run_logs)


def _line_count(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(f"must be a whole number of lines, 0 or more, but got {text!r}")
    return int(text)


def run_stop(arguments: argparse.Namespace) -> int:
    """``entrepot stop``."""
    address = resolve(arguments.address).address
    had_socket = launcher.is_listening(address)
    try:
        return _stop_reachable(arguments)
    except VersionMismatch:
        return _stop_listeners(address, launcher.listening_pids(address), " (of a different version)")
    except StoreUnavailable:
        if had_socket and launcher.is_listening(address):
            raise
        # Its socket file may be gone, and the store may be unable to recreate it.
        if processes := launcher.listening_pids(address):
            return _stop_listeners(address, processes, " (whose socket was removed)")
        # If the socket was recreated while listening_pids() ran, it can seem that nobody holds it.
        if not launcher.is_listening(address):
            raise
    return _stop_reachable(arguments)


def _stop_reachable(arguments: argparse.Namespace) -> int:
    with connect_for_inspection(arguments.address) as store:
        if not arguments.no_flush:
            _flush_durable_sessions(store)
        status = store.status()
        address = store.address
    objects = int(status["objects"])
    _end_gateways(address)
    if not launcher.stop(int(status["keeper_pid"])):
        processes = [int(status["keeper_pid"]), int(status["pid"])]
        raise StoreUnavailable(
            f"the store at {address} (process {status['keeper_pid']}) did not exit within 20 s"
            f"{launcher.describe_stopped(processes)}"
        )
    print(f"store at {address} stopped; {count_of(objects, 'object')} discarded")
    _end_front_ends(address)
    return 0


def _end_gateways(address: str) -> None:
    if pids := end_gateways(address):
        print(
            "entrepot: the gateway of the store did not leave the cluster within 5 s, and will count as lost: "
            f"processes {' '.join(map(str, pids))}{launcher.describe_stopped(pids)}",
            file=sys.stderr,
        )


def _end_front_ends(address: str) -> None:
    if pids := end_front_ends(address):
        raise StoreUnavailable(
            f"the store at {address} was stopped, but not all of its front ends for Plasma clients exited: processes "
            f"{' '.join(map(str, pids))}{launcher.describe_stopped(pids)}"
        )


def _flush_durable_sessions(store: Store) -> None:
    """Write whatever the durable tiers still lack, whoever put it; on an error the store keeps running."""
    from entrepot._client.queries import session_records  # here, because these load the extension
    from entrepot._store import connection

    client = store._client  # pyright: ignore[reportPrivateUsage]
    for record in session_records(client.raw):
        scope, session = record["scope"], record["session"]
        durable = durable_config(client, scope, session)
        if durable is None:
            continue
        with connection.connect(store.address, scope=scope, session=session, durable=durable) as opened:
            count = checkpoint_function("flush")(opened)
        print(f"{session_phrase(scope, session)} has {count_of(count, 'object')} in its durable tier {durable.url}")


def _stop_listeners(address: str, processes: list[int], qualifier: str) -> int:
    """End a store that cannot be talked to, by terminating the processes that listen at its address."""
    if not processes:
        raise StoreUnavailable(
            f"cannot stop the store at {address}{qualifier}: none of this user's processes listens there; "
            "stop it where it was started"
        )
    remaining = [process for process in processes if not launcher.stop(process)]
    if remaining:
        raise StoreUnavailable(
            f"the store at {address} did not exit within 20 s: processes {remaining} are still running"
            f"{launcher.describe_stopped(remaining)}"
        )
    print(f"store at {address}{qualifier} stopped; all its objects discarded")
    _end_front_ends(address)
    return 0


def _status_after_handover(address: str | None, former_pid: int) -> dict[str, Any]:
    """The status of the daemon after an upgrade. The former one answers until its keeper has ended it."""
    end = time.monotonic() + HANDOVER_SECONDS
    while True:
        with connect_for_inspection(address) as store:
            status = store.status()
        if status["pid"] not in (0, former_pid):
            return status
        if time.monotonic() > end:
            raise StoreUnavailable(
                f"the other program has not taken over within {HANDOVER_SECONDS:g} s, and daemon {former_pid} still "
                "serves: see the log (`entrepot logs`)"
            )
        time.sleep(0.01)


def run_upgrade(arguments: argparse.Namespace) -> int:
    """``entrepot upgrade``."""
    program = str((arguments.program or launcher.daemon_binary()).resolve())
    try:
        with connect_for_inspection(arguments.address) as store:
            address, before = store.address, store.status()
            store._raw().upgrade(program)  # pyright: ignore[reportPrivateUsage]
    except VersionMismatch as error:
        raise VersionMismatch(
            f"{error} Incompatible versions must be upgraded from the older one: run its `entrepot "
            f"upgrade --program {program}`, or install in place and send the daemon SIGUSR2."
        ) from error
    after = _status_after_handover(arguments.address, before["pid"])
    if os.path.realpath(after["program"]) != program:
        raise StoreUnavailable(
            f"{program} took over, but its daemon exited at once, so the store reverted to {after['program']}; "
            "nothing is lost, and the log (`entrepot logs`) shows why it exited"
        )
    print(
        f"store at {address}: upgraded from version {before['version']} (daemon {before['pid']}) to version "
        f"{after['version']} (daemon {after['pid']}), with {count_of(after['objects'], 'object')}"
    )
    return 0


def run_status(arguments: argparse.Namespace) -> int:
    """``entrepot status``."""
    with connect_for_inspection(arguments.address) as store:
        if arguments.wait_provisioned is not None:
            store.wait_provisioned(arguments.wait_provisioned)
        status = store.status()
    print(json.dumps(status, indent=2) if arguments.json else style_labels(format_status(status)))
    return 0


def _warm_phrase(status: dict[str, Any]) -> str:
    """Return how much free memory the store keeps, and why."""
    ahead = f"{human_bytes(status['provision_target_bytes'])} ahead of demand"
    seconds = status.get("kept_for_seconds")
    if seconds is None:  # an earlier version of the daemon
        return ahead
    if not seconds:
        return f"{ahead}, and all that becomes free: it is never given back"
    if not status["kept_target_bytes"]:
        return f"{ahead}; no more, because in the last {seconds} s never more was in use than now"
    recent = human_bytes(status["kept_target_bytes"])
    return f"{ahead}, and {recent} because so much more than now was in use within the last {seconds} s"


def format_status(status: dict[str, Any]) -> str:
    """Format the status for people."""
    lines = [
        f"store      {status['instance']} on {status['host']}, version {status['version']}, "
        f"daemon {status['pid']}, keeper {status['keeper_pid']}, up {int(status['uptime_seconds'])} s",
        f"capacity   {human_bytes(status['capacity_bytes'])}: used {human_bytes(status['used_bytes'])}, "
        f"leased to writers {human_bytes(status['leased_bytes'])}, "
        f"free and kept for the next puts {human_bytes(kept_bytes(status))} (warm {human_bytes(status['warm_bytes'])}"
        f"{'' if status['provisioned'] else ', more is being warmed'}), "
        f"free and not taken from the machine {human_bytes(status['budget']['free_bytes'])}",
        f"warm       {_warm_phrase(status)}",
        f"objects    {status['objects']} in {count_of(status['sessions'], 'session')}, "
        f"{count_of(status['names'], 'name')}, pinned {human_bytes(status['pinned_bytes'])}, "
        f"{status['deferred_frees']} deleted but still being read",
        f"disk       {_disk_phrase(status['spill'])}",
    ]
    budget = status["budget"]
    parts = [f"{name.replace('_', ' ')} {human_bytes(nbytes)}" for name, nbytes in budget["items"].items() if nbytes]
    lines.append(f"memory     {human_bytes(budget['granted_bytes'])} taken from the machine: {', '.join(parts)}")
    lines += _reservation_lines(status.get("reservations"))
    lines += _stream_lines(status.get("streams"))
    if (gateway := status.get("gateway")) and gateway["process"]:
        state = "" if gateway["serves"] else ", which does not respond"
        lines.append(f"gateway    {gateway['process']}{state}, {count_of(gateway['calls'], 'call')} not answered yet")
    if status["drops"]:
        lines.append(
            f"dropped    {count_of(status['drops'], 'object')} of {human_bytes(status['drops_bytes'])} that can be "
            f"recomputed, {status['dropped']} of them not yet recomputed"
        )
    if status["follows_killed_store"]:
        lines.append("note       the previous store was killed: objects without a copy on disk are lost")
    if status["provision_note"]:
        lines.append(f"note       memory: {status['provision_note']}")
    if status["spill"]["enabled"] and status["spill"]["note"]:
        lines.append(f"note       spilling: {status['spill']['note']}")
    if dropped := status["log_lines_dropped"] + status["keeper_log_lines_dropped"]:
        lines.append(f"note       dropped {count_of(dropped, 'log line')}: see docs/daemon.md, Log")
    if status["clients"]:
        rows = [
            [
                str(client["pid"]),
                str(client["label"]),
                str(client["pins"]),
                human_bytes(client["leased_bytes"]),
                _connection_state(client),
            ]
            for client in status["clients"]
        ]
        lines.append(table(rows, ["pid", "client", "pins", "leased", "connected"]))
    return "\n".join(lines)


def _reservation_lines(reservations: dict[str, Any] | None) -> list[str]:
    """Return who has reserved memory and who waits for it, in order; ``None``: the daemon is older."""
    if reservations is None or not (reservations["granted"] or reservations["waiting"]):
        return []
    granted, waiting = reservations["granted"], reservations["waiting"]
    lines = [
        f"reserved   {human_bytes(reservations['bytes'])} in {count_of(len(granted), 'reservation')}, "
        f"{len(waiting)} waiting"
    ]
    rows = [
        [
            str(entry["pid"]),
            str(entry["label"]),
            human_bytes(entry["bytes"]),
            human_bytes(entry["used_bytes"]),
            f"for {int(entry['held_seconds'])} s",
        ]
        for entry in granted
    ]
    rows += [
        [
            str(entry["pid"]),
            str(entry["label"]),
            human_bytes(entry["bytes"]),
            "",
            f"waiting for {int(entry['waiting_seconds'])} s",
        ]
        for entry in waiting
    ]
    return [*lines, table(rows, ["pid", "client", "reserved", "stored", "held"])]


def _stream_lines(streams: list[dict[str, Any]] | None) -> list[str]:
    """Return what is in each stream and who writes and reads it; ``None``: the daemon is older."""
    return [f"streams    {len(streams)}", stream_table(streams)] if streams else []


def kept_bytes(status: dict[str, Any]) -> int:
    """Return the bytes of segments that hold no values and that no writer has: the next puts take them."""
    payload: int = status["used_bytes"] - status["record_bytes"]
    segments: int = status["budget"]["items"]["segments"]
    leased: int = status["leased_bytes"]
    return max(0, segments - payload - leased)


def _disk_phrase(spill: dict[str, Any]) -> str:
    if not spill["enabled"]:
        return f"nothing is spilled: {spill['note']}"
    return (
        f"{human_bytes(spill['disk_bytes'])} spilled of at most {human_bytes(spill['quota_bytes'])}, "
        f"in {', '.join(map(printable, spill['folders']))}"
    )


def _connection_state(client: dict[str, Any]) -> str:
    if client["connected"]:
        return f"for {int(client['connected_seconds'])} s"
    return "no: its pins and leases are still held" if client["quarantined"] else "no"


def run_logs(arguments: argparse.Namespace) -> int:
    """``entrepot logs``."""
    path: Path = arguments.log_file or launcher.log_of(resolve(arguments.address).address)
    if not path.is_file():
        raise InvalidArgument(f"{path} is not a log file: pass the path that the store was started with")
    with path.open(encoding="utf-8", errors="replace") as file:
        sys.stdout.writelines(deque(file, maxlen=arguments.lines))
        while arguments.follow:
            line = file.readline()
            if line:
                sys.stdout.write(line)
                sys.stdout.flush()
            else:
                time.sleep(0.2)
    return 0
