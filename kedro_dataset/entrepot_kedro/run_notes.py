"""Notes about runs that have not succeeded (yet): files beside the event log, because they must outlive the store.

A note says where the values of a run are. It is written before the run begins and removed when it succeeds, so a note
whose process is gone means that the run was killed or failed.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any

from entrepot_io.keys import shorten

from entrepot_kedro.ended_runs import process_of
from entrepot_kedro.policies import logger

FORMAT_VERSION = 1
KEPT = 64
KEPT_SECONDS = 30 * 86400.0
_SAME = ("pipeline_names", "env", "runtime_params", "load_versions")


def identity_of(run_params: dict[str, Any]) -> str:
    """Return a digest of what two runs must have in common for one to continue with the values of the other.

    Args:
        run_params: run parameters, as Kedro passes them to hooks.
    """
    said = {name: run_params.get(name) or None for name in _SAME}
    text = json.dumps(said, sort_keys=True, default=repr)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


class RunNotes:
    """The notes of a scope.

    Args:
        log: path of the scope's event log.
    """

    def __init__(self, log: Path) -> None:
        self._folder = log.with_suffix(".runs")

    def write(self, run: str, session: str, identity: str) -> None:
        """Write a note about a run that begins in this process.

        Args:
            run: its ID.
            session: the session of its values.
            identity: result of :func:`identity_of`.
        """
        said = {
            "v": FORMAT_VERSION,
            "run": run,
            "session": session,
            "identity": identity,
            "begun": time.time(),
            "process": process_of(os.getpid()),
        }
        self._put(run, said)
        self._prune()

    def failed(self, run: str) -> None:
        """Mark a run as over although its process continues, as in a notebook."""
        said = _read(self._path(run))
        if said is not None:
            self._put(run, said | {"process": ""})

    def remove(self, run: str) -> None:
        """Remove the note of a run that succeeded."""
        self._path(run).unlink(missing_ok=True)

    def take(self, identity: str) -> str | None:
        """Return the session of the newest matching run that is over and did not succeed; None if there is none.

        Removes its note; the caller writes a new one.

        Args:
            identity: identity of the run, as in the note.
        """
        for path, said in self._all():
            if said.get("identity") == identity and not _is_alive(str(said.get("process", ""))):
                session = said.get("session")
                path.unlink(missing_ok=True)
                if isinstance(session, str):
                    return session
        return None

    def _put(self, run: str, said: dict[str, Any]) -> None:
        path = self._path(run)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            new = path.with_suffix(f".{os.getpid()}.new")
            new.write_text(json.dumps(said))
            new.replace(path)  # atomic
        except OSError as error:
            logger.warning("Entrepot: if this run is killed, none can go on with it: %s: %s", path, error)

    def _all(self) -> list[tuple[Path, dict[str, Any]]]:
        """Return all notes, newest first."""
        found = [(path, said) for path in self._folder.glob("*.json") if (said := _read(path)) is not None]
        found.sort(key=lambda one: float(one[1].get("begun", 0.0)), reverse=True)
        return found

    def _prune(self) -> None:
        for number, (path, said) in enumerate(self._all()):
            if number >= KEPT or time.time() - float(said.get("begun", 0.0)) > KEPT_SECONDS:
                path.unlink(missing_ok=True)

    def _path(self, run: str) -> Path:
        name = "".join(c if c.isalnum() or c in "._-" else "-" for c in run)
        return self._folder / f"{shorten(name, 120)}.json"


def _read(path: Path) -> dict[str, Any] | None:
    try:
        said = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return said if isinstance(said, dict) and said.get("v") == FORMAT_VERSION else None


def _is_alive(process: str) -> bool:
    pid = process.partition(" ")[0]
    return pid.isdigit() and process_of(int(pid)) == process
