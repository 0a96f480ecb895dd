"""``entrepot start``: starts a store, or checks that the one that runs already has the settings asked for."""

from __future__ import annotations

import argparse
import math
import os
import shlex
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from entrepot._cli.common import (
    add_connection_options,
    connect_for_inspection,
    duration_option,
    human_bytes,
    size_option,
)
from entrepot._daemon import launcher
from entrepot._daemon.gateway_process import start_gateway
from entrepot._daemon.plasma_front_end import start_front_end
from entrepot._daemon.settings import resolve
from entrepot._daemon.units import parse_duration, parse_size
from entrepot.errors import EntrepotError, InvalidArgument
from entrepot.phrases import duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from entrepot._cli.common import SubParsers


def add_subcommand(subparsers: SubParsers) -> None:
    """Add the subcommand."""
    start = subparsers.add_parser(
        "start",
        help="start a store in the background",
        description="Start a store in the background. If one runs at the address already and has the settings given "
        "here, nothing is done; if it has others, that is an error.",
    )
    add_connection_options(start)
    start.add_argument("--size", type=size_option, help="capacity, such as 4GiB (default: a share of memory)")
    start.add_argument(
        "--idle-exit",
        type=duration_option,
        metavar="TIME",
        help="exit after being idle for so long, such as 90s or 15min (default: what --config says, else 0: never)",
    )
    start.add_argument(
        "--log-file", type=Path, help="log file (default: one for each address, in the user's state folder)"
    )
    start.add_argument("--config", type=Path, help="the daemon's configuration file")
    start.add_argument(
        "--plasma", type=Path, metavar="SOCKET", help="also serve Plasma clients at this socket (entrepot-plasma-store)"
    )
    start.add_argument(
        "--plasma-size",
        type=size_option,
        metavar="SIZE",
        help="capacity for Plasma clients (default: half the store)",
    )
    start.add_argument(
        "--cluster",
        metavar="URL",
        help="also make the store part of a cluster, whose directory this is: etcd://HOST:2379/NAME (entrepot gateway; "
        "default: ENTREPOT_CLUSTER)",
    )
    start.add_argument(
        "--gateway-options", metavar="TEXT", default="", help='options of the gateway, such as "--listen 10.0.0.5:7077"'
    )
    start.set_defaults(run=run_start)


def run_start(arguments: argparse.Namespace) -> int:
    """``entrepot start``."""
    if arguments.config is not None and not arguments.config.is_file():
        raise InvalidArgument(f"--config {arguments.config}: there is no such file")
    settings = resolve(arguments.address, session=arguments.session, scope=arguments.scope)
    if launcher.is_listening(settings.address):
        if differences := _differences(arguments, settings.address):
            raise InvalidArgument(
                f"a store already listens at {settings.address}, and keeps its settings: {'; '.join(differences)}; "
                "leave these options out to use it as it is, or run 'entrepot stop' first, which discards its objects"
            )
        print(f"a store already listens at {settings.address}")
        _serve_plasma(arguments, settings.address)
        _join_cluster(arguments, settings.address)
        return 0
    size = arguments.size or (None if arguments.config else settings.private_size)
    idle_exit: float | None = arguments.idle_exit
    if idle_exit is None and arguments.config is None:
        idle_exit = 0
    log = (arguments.log_file or launcher.log_path(settings.address)).resolve()
    launcher.start(
        settings.address,
        size=size,
        idle_exit_seconds=None if idle_exit is None else math.ceil(idle_exit),
        log=log,
        extra=("--config", str(arguments.config.resolve())) if arguments.config else (),
    )
    print(f"store at {settings.address}, which logs to {log}")
    _serve_plasma(arguments, settings.address)
    _join_cluster(arguments, settings.address)
    return 0


def _join_cluster(arguments: argparse.Namespace, address: str) -> None:
    """Start the gateway if ``--cluster`` asks for it."""
    url = arguments.cluster or os.environ.get("ENTREPOT_CLUSTER", "")
    if not url:
        if arguments.gateway_options:
            raise InvalidArgument(f"--gateway-options {arguments.gateway_options!r} needs --cluster")
        return
    try:
        options = shlex.split(arguments.gateway_options)
    except ValueError as error:
        raise InvalidArgument(f"--gateway-options {arguments.gateway_options!r}: {error}") from error
    with connect_for_inspection(address) as store:

        def gateway_label() -> str:
            gateway = store.status()["gateway"]
            return str(gateway["process"]) if gateway["serves"] else ""

        log = launcher.log_path(address)
        started = start_gateway(url, options, address, log.with_name(f"{log.stem}-gateway.log"), gateway_label)
        print(f"{'joined' if started else 'already in'} the cluster {url} ({gateway_label()})")


def _serve_plasma(arguments: argparse.Namespace, address: str) -> None:
    """Start the front end for Plasma clients if ``--plasma`` asks for it."""
    if arguments.plasma is None:
        if arguments.plasma_size is not None:
            raise InvalidArgument(f"--plasma-size {arguments.plasma_size} needs --plasma, their socket")
        return
    with connect_for_inspection(address) as store:
        capacity = int(store.status()["capacity_bytes"])
    nbytes = capacity // 2 if arguments.plasma_size is None else parse_size(arguments.plasma_size)
    path, log = arguments.plasma.absolute(), launcher.log_path(address)
    started = start_front_end(path, nbytes, address, log.with_name(f"{log.stem}-plasma.log"))
    print(f"{'serving' if started else 'already serving'} Plasma clients at {path}, {human_bytes(nbytes)}")


def _differences(arguments: argparse.Namespace, address: str) -> list[str]:
    """Return, for each option that the running store does not have, what it is instead."""
    given = (arguments.size, arguments.idle_exit, arguments.log_file, arguments.config)
    if all(value is None for value in given):
        return []
    with connect_for_inspection(address) as store:
        status = store.status()
    command = _command_of(int(status["keeper_pid"]))
    differing: list[str] = []
    if arguments.size is not None and parse_size(arguments.size) != status["capacity_bytes"]:
        differing.append(f"--size {arguments.size} was not applied (it has {human_bytes(status['capacity_bytes'])})")
    running_config = _flag(command, "config")
    if arguments.idle_exit is not None:
        text = _flag(command, "idle-exit") or ("" if running_config else "0")
        running = None
        with suppress(EntrepotError):
            running = parse_duration(text)
        if running != math.ceil(arguments.idle_exit):
            reason = "cannot tell what it has" if running is None else f"it has {duration(int(running))}"
            differing.append(f"--idle-exit {arguments.idle_exit:g} was not applied ({reason})")
    if arguments.log_file is not None:
        try:
            log: Path | None = launcher.log_of(address)
        except EntrepotError:
            log = None  # its standard error
        if log is None or log.resolve() != arguments.log_file.resolve():
            differing.append(f"--log-file {arguments.log_file} was not applied")
    if arguments.config is not None and running_config != str(arguments.config.resolve()):
        differing.append(f"--config {arguments.config} was not applied (it was not started with that file)")
    return differing


def _command_of(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8", errors="surrogateescape").split("\0")
    except OSError:
        return []  # replaced in the meantime


def _flag(command: Sequence[str], name: str) -> str | None:
    """Return the last value of a flag of entrepotd, given as ``--name value`` or ``--name=value``."""
    value = None
    for index, word in enumerate(command):
        if word == f"--{name}" and index + 1 < len(command):
            value = command[index + 1]
        elif word.startswith(f"--{name}="):
            value = word.partition("=")[2]
    return value
