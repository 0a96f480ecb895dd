"""``entrepot doctor``: checks what this machine offers a store, what is missing, and what to do about it."""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

from entrepot._cli.common import add_connection_options, human_bytes
from entrepot._cli.machine_checks.check import Check
from entrepot._cli.machine_checks.machine import Machine
from entrepot._cli.machine_checks.probes import probe_huge_pages, probe_memfd, probe_pidfd
from entrepot._cli.machine_checks.surroundings import surroundings
from entrepot._daemon import launcher
from entrepot._daemon.settings import config_path, resolve, socket_path
from entrepot.errors import EntrepotError
from entrepot.phrases import count_of

if TYPE_CHECKING:
    from entrepot._cli.common import SubParsers


def add_subcommands(subparsers: SubParsers) -> None:
    """Add the subcommand."""
    doctor = subparsers.add_parser("doctor", help="check this machine and the store on it")
    add_connection_options(doctor)
    doctor.add_argument("--fix-hints", action="store_true", help="below each finding, a command that changes it")
    doctor.add_argument("--json", action="store_true", help="as JSON, with the hints")
    doctor.set_defaults(run=run_doctor)


def run_doctor(arguments: argparse.Namespace) -> int:
    """``entrepot doctor``; exit code 1 if something prevents a store from working."""
    results = list(_checks(Machine(), arguments.address))
    if arguments.json:
        print(json.dumps([asdict(result) for result in results], indent=2))
    else:
        print("\n".join(report(results, hints=arguments.fix_hints)))
    return 1 if any(result.level == "problem" for result in results) else 0


def report(results: list[Check], *, hints: bool) -> Iterator[str]:
    """The lines of the report for people."""
    for result in results:
        yield f"{result.level.ljust(7)}  {result.topic}: {result.text}"
        if hints and result.hint:
            yield f"{' ' * 9}hint: {result.hint}"
    if not hints and any(result.hint and result.level != "ok" for result in results):
        yield f"{' ' * 9}(entrepot doctor --fix-hints prints what to do about each)"


def _checks(machine: Machine, address: str | None) -> Iterator[Check]:
    text = f"{machine.system} {platform.release()} on {platform.machine()}, Python {platform.python_version()}"
    yield Check("system", "ok", text)
    yield from surroundings(machine)
    if machine.system != "Linux":
        return  # what follows would only fail for the same reason
    yield probe_memfd(machine)
    yield probe_pidfd(machine)
    yield probe_huge_pages()
    yield _binary()
    yield from _store(address)


def _binary() -> Check:
    reinstall = "pip install --force-reinstall entrepot"
    try:
        path = launcher.daemon_binary()
    except EntrepotError as error:
        return Check("entrepotd", "problem", str(error), reinstall)
    if not os.access(path, os.X_OK):
        return Check("entrepotd", "problem", f"{path} is not executable", f"chmod +x {path}")
    return Check("entrepotd", "ok", str(path))


def _store(address: str | None) -> list[Check]:
    try:
        settings = resolve(address)
        location = f"{settings.address} (configuration: {config_path() or 'none'})"
        path = socket_path(settings.address)
        forbidden = launcher.is_forbidden(settings.address)  # then connecting says why
        if not forbidden and not path.exists():
            return [
                Check("store", "note", f"no store listens at {location}; one is started on first use", "entrepot start")
            ]
        if not forbidden and (owner := path.stat().st_uid) != os.getuid():
            return [Check("store", "problem", f"{path} belongs to user {owner}, but this is user {os.getuid()}")]
        if not forbidden and not launcher.is_listening(settings.address):
            return [Check("store", "note", f"{path} is left over from a dead store; starting a store replaces it")]
        from entrepot._store import connection  # here, because it loads the extension

        with connection.connect(settings.address, session="", scope="default", durable=False) as store:
            status = store.status()
    except EntrepotError as error:
        return [Check("store", "problem", str(error))]
    text = (
        f"{location}: version {status['version']}, {count_of(status['objects'], 'object')}, "
        f"{human_bytes(status['used_bytes'])} of {human_bytes(status['capacity_bytes'])} used"
    )
    checks = [Check("store", "ok", text)]
    if note := status["spill"]["note"]:
        state = "in trouble" if status["spill"]["enabled"] else "off, so a full store refuses puts"
        checks.append(Check("disk", "note", f"spilling is {state}: {note}"))
    return checks
