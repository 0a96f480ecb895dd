"""Sessions of finished Kedro runs, for ``entrepot gc``. Imports nothing of Kedro.

A run that succeeds leaves a mark in its session, which its process then removes with the session. A mark whose process
is gone means that the process was killed before it could. Sessions of failed runs are kept: another run may continue in
them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from entrepot import raw_objects
from entrepot.errors import CorruptData, ObjectLost
from entrepot.ids import ObjectID

if TYPE_CHECKING:
    from entrepot import Store

ENDED_KEY = "kedro-run-ended"
ENDED = "its run succeeded and its process has exited"


def ended_runs(store: Store, scope: str, sessions: Sequence[str]) -> Mapping[str, str]:
    """Return sessions of runs that succeeded, but whose process could not remove them.

    Args:
        store: the store that has them.
        scope: scope of the project.
        sessions: their names.

    Raises:
        StoreUnavailable: the store cannot be reached.
    """
    return {session: ENDED for session in sessions if _has_ended(store, scope, session)}


def process_mark() -> dict[str, str]:
    """Identify this process, so that it cannot be mistaken for one that gets its PID later."""
    return {"process": process_identity(os.getpid()), "pids": _namespace()}


def has_exited(mark: Mapping[str, Any]) -> bool:
    """Return whether the process of a mark is known to have exited: one of another PID namespace is not known here."""
    if mark.get("pids") != _namespace():
        return False
    process = str(mark.get("process", ""))
    pid = process.partition(" ")[0]
    return pid.isdigit() and process_identity(int(pid)) != process


def process_identity(pid: int) -> str:
    """Identify a process by PID, start time and boot ID; empty if it has exited, even if nobody has waited for it."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else f"{pid} {fields[19]} {boot_id}"


def _namespace() -> str:
    """Return the PID namespace: processes of another one are invisible here, and so not known to be gone."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _has_ended(store: Store, scope: str, session: str) -> bool:
    try:
        raw = raw_objects.get_record(store, ObjectID.derive(scope, session, ENDED_KEY))
        mark: Any = None if raw is None else json.loads(raw)
    except (CorruptData, ObjectLost, ValueError):
        return False
    return isinstance(mark, dict) and has_exited(mark)
