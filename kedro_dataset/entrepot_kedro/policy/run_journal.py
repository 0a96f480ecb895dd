"""Journal of runs that have not succeeded (yet): files beside the event log, because they must outlive the store.

An entry says where the values of a run are. It is written before the run begins and removed when it succeeds, so an
entry whose process is gone means that the run was killed or failed.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from entrepot.errors import InvalidArgument

from entrepot_kedro.active_runs import CONF_SOURCE
from entrepot_kedro.ended_runs import process_identity
from entrepot_kedro.log import logger
from entrepot_kedro.run_files import ENTRY, FINISHED, file_name, run_folder
from entrepot_kedro.values.sessions import project_folder

FORMAT_VERSION = 2
MAX_ENTRIES = 64
MAX_AGE_SECONDS = 30 * 86400.0
TEMPORARY_SECONDS = 3600.0  # no write takes that long
_REQUEST_PARAMS = ("pipeline_names", "env", CONF_SOURCE, "runtime_params", "load_versions")
_IDENTITY_PARAMS = ("project_path", *_REQUEST_PARAMS)  # projects may share a scope
_NODE_PARAMS = ("tags", "node_names", "from_nodes", "to_nodes", "from_inputs", "to_outputs", "namespaces")
_REQUEST_TYPES: dict[str, type] = {
    "pipeline_names": list,
    "env": str,
    CONF_SOURCE: str,
    "runtime_params": dict,
    "load_versions": dict,
    **dict.fromkeys(_NODE_PARAMS, list),
}
_reported: set[Path] = set()  # unreadable entries that this process has warned of; grows by one each, under the GIL


def run_identity(run_params: dict[str, Any]) -> str:
    """Return a digest of what two runs must have in common for one to continue with the values of the other.

    Args:
        run_params: run parameters, as Kedro passes them to hooks.
    """
    parameters = {name: run_params.get(name) or None for name in _IDENTITY_PARAMS}
    text = json.dumps(_sorted(parameters))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def run_request(run_params: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what a run was asked for, to ask for it again: the parameters that are set, with lists for tuples.

    Args:
        run_params: run parameters, as Kedro passes them to hooks.

    Returns:
        None if one of them has values that JSON cannot represent, as a notebook may pass.
    """
    request: dict[str, Any] = {name: value for name in _REQUEST_PARAMS if (value := run_params.get(name))}
    request |= {name: list(value) for name in _NODE_PARAMS if (value := run_params.get(name))}
    return request if _is_plain(request) else None


class RunJournal:
    """The journal of a scope.

    Args:
        log_path: path of the scope's event log.
    """

    def __init__(self, log_path: Path) -> None:
        self._folder = run_folder(log_path)

    def write(self, run_id: str, session: str, identity: str, request: Mapping[str, Any] | None = None) -> None:
        """Write the entry of a run that begins in this process.

        Args:
            run_id: its ID.
            session: the session of its values.
            identity: result of :func:`run_identity`.
            request: result of :func:`run_request`.

        Raises:
            InvalidArgument: another process works on a run of this ID, and both would write the same values.
        """
        entry = {
            "v": FORMAT_VERSION,
            "run": run_id,
            "session": session,
            "identity": identity,
            "request": request,
            "begun": time.time(),
            "process": process_identity(os.getpid()),
            "project": str(project_folder().resolve()),
        }
        self._write_entry(run_id, entry, _install_new)
        self._prune()

    def mark_failed(self, run_id: str) -> None:
        """Mark a run as over although its process continues, as in a notebook."""
        entry = _read_entry(self._path(run_id))
        if entry is not None:
            self._write_entry(run_id, entry | {"process": ""})

    def remove(self, run_id: str) -> bool:
        """Remove the entry of a run that succeeded, or that the caller continues.

        Returns:
            Whether this call removed it: of several runs that want to continue the same one, a single one gets True.
        """
        path = self._path(run_id)
        try:
            path.unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            logger.warning("Entrepot: cannot remove %s, so that run may be continued again: %s", path, error)
            return False
        return True

    def note_start_nodes(self, session: str, nodes: Sequence[str]) -> None:
        """Note with which nodes the newest run in a session, which has failed, is to be continued."""
        if (entry := self._newest_in(session)) is not None:
            self._write_entry(str(entry.get("run", "")), entry | {"start_nodes": list(nodes)})

    def start_nodes(self, session: str) -> list[str]:
        """Return the nodes with which the newest run in a session is to be continued; empty: it was killed."""
        nodes = (self._newest_in(session) or {}).get("start_nodes")
        return [str(node) for node in nodes] if isinstance(nodes, list) else []

    def projects(self) -> dict[str, str]:
        """Return by session the folder of the project whose run is the newest in it."""
        return {str(entry["session"]): str(entry["project"]) for entry in reversed(self._entries())}

    def newest_failed_session(self, project: Path) -> str | None:
        """Return the session of the newest run of a project that is over and did not succeed; None: there is none."""
        folder = str(project.resolve())
        for entry in self._entries():
            if entry["project"] == folder and not _is_alive(entry["process"]):
                return str(entry["session"])
        return None

    def request_of(self, session: str) -> dict[str, Any] | None:
        """Return what the newest run in a session was asked for; None if the journal has no such run.

        Raises:
            InvalidArgument: it was asked for something that the journal cannot have, see :func:`run_request`.
        """
        entry = self._newest_in(session)
        if entry is None:
            return None
        request: dict[str, Any] | None = entry["request"]
        if request is None:
            raise InvalidArgument(
                f"the run of session {session} had parameters that only Python can represent, so it cannot be asked "
                "for again from outside: where it was run, run it again with only_missing_outputs=True"
            )
        return request

    def take_session(self, run_id: str, identity: str, request: Mapping[str, Any] | None = None) -> str | None:
        """Let a run that begins continue the newest matching one that is over and did not succeed.

        Args:
            run_id, identity, request: of the run that begins, as for :meth:`write`.

        Returns:
            its session; None if there is none.
        """
        for earlier_id, session in self.sessions(identity):
            if self.take_over(earlier_id, run_id, session, identity, request):
                return session
        return None

    def take_over(
        self, earlier_id: str, run_id: str, session: str, identity: str, request: Mapping[str, Any] | None = None
    ) -> bool:
        """Let a run that begins continue an earlier one: its entry takes the place of that one's.

        At no time is there neither of them, so a run that is refused or killed as it begins can be continued in turn.

        Args:
            earlier_id: ID of the earlier run.
            run_id, session, identity, request: of the run that begins, as for :meth:`write`.

        Returns:
            False: another run has been faster, and this one has no entry.
        """
        self.write(run_id, session, identity, request)
        if self.remove(earlier_id):
            return True
        self.remove(run_id)
        return False

    def remove_session(self, session: str) -> None:
        """Remove the entries of runs in a session, which somebody has continued without an entry of its own."""
        for entry in self._entries():
            if entry.get("session") == session:
                self.remove(str(entry.get("run", "")))

    def sessions(self, identity: str) -> Iterator[tuple[str, str]]:
        """Yield ID and session of matching runs that are over and did not succeed, the newest first.

        Args:
            identity: identity of the run, as in the entry.
        """
        for entry in self._entries():
            run_id, session = entry.get("run"), entry.get("session")
            if entry.get("identity") != identity or _is_alive(str(entry.get("process", ""))):
                continue
            if isinstance(session, str) and isinstance(run_id, str):
                yield run_id, session

    def _write_entry(
        self, run_id: str, entry: dict[str, Any], install: Callable[[Path, Path], object] = Path.replace
    ) -> None:
        path = self._path(run_id)
        temporary_path = path.with_suffix(f".{os.getpid()}.new")
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            try:
                temporary_path.write_text(json.dumps(entry))
                install(temporary_path, path)  # atomic
            finally:
                temporary_path.unlink(missing_ok=True)
        except OSError as error:
            logger.warning("Entrepot: cannot write %s; if this run is killed, it cannot be continued: %s", path, error)

    def _newest_in(self, session: str) -> dict[str, Any] | None:
        """Return the entry of the newest run in a session; None if there is none."""
        return next((entry for entry in self._entries() if entry.get("session") == session), None)

    def _entries(self) -> list[dict[str, Any]]:
        """Return all entries, newest first."""
        entries = [entry for path in self._folder.glob(f"*{ENTRY}") if (entry := _read_entry(path)) is not None]
        entries.sort(key=_begun, reverse=True)
        return entries

    def _prune(self) -> None:
        # Entries of processes that were killed while they wrote, and nodes of runs that somebody has removed.
        for pattern, age in (("*.new", TEMPORARY_SECONDS), (f"*{FINISHED}", MAX_AGE_SECONDS)):
            for path in self._folder.glob(pattern):
                with suppress(OSError):
                    if time.time() - path.stat().st_mtime > age:
                        path.unlink()
        for path in self._folder.glob(f"*{ENTRY}"):
            with suppress(OSError):  # removed meanwhile
                if time.time() - path.stat().st_mtime > MAX_AGE_SECONDS and _read_entry(path) is None:
                    path.unlink()
        for number, entry in enumerate(self._entries()):
            is_old = number >= MAX_ENTRIES or time.time() - _begun(entry) > MAX_AGE_SECONDS
            if is_old and not _is_alive(str(entry.get("process", ""))):
                self.remove(str(entry.get("run", "")))

    def _path(self, run_id: str) -> Path:
        return self._folder / file_name(run_id, ENTRY)


def _install_new(temporary_path: Path, path: Path) -> None:
    """Move the entry of a run that begins to its place, unless another process works on a run of the same ID.

    Kedro's run IDs are times in milliseconds, so two runs that begin at once may have the same.
    """
    try:
        os.link(temporary_path, path)  # unlike a rename, fails if there is an entry
        return
    except FileExistsError:
        pass
    except OSError:  # a file system without hard links: what begins between the look and the rename is not noticed
        if not path.exists():
            temporary_path.replace(path)
            return
    other = _read_entry(path)
    process = "" if other is None else str(other.get("process", ""))
    if other is not None and _is_alive(process) and process != process_identity(os.getpid()):
        raise InvalidArgument(
            f"process {process.partition(' ')[0]} works on a run of this project with the same ID, "
            f"{other.get('run')!r}, as both began in the same millisecond: they would overwrite each other's "
            "values; run this one again"
        )
    temporary_path.replace(path)


def _read_entry(path: Path) -> dict[str, Any] | None:
    """Return an entry; None: there is none, or it is unreadable, which is logged once."""
    try:
        if not path.is_file() and path.exists():
            raise ValueError("it is not a regular file")
        entry = json.loads(path.read_text())
    except FileNotFoundError:
        return None  # its run has just ended
    except (OSError, ValueError, RecursionError) as error:
        reason = str(error)
    else:
        reason = _damage(entry)
        if not reason:
            readable: dict[str, Any] = entry
            return readable
    if path not in _reported:
        _reported.add(path)
        logger.warning("Entrepot: ignoring the run of journal entry %s, which is not readable: %s", path, reason)
    return None


def _damage(entry: Any) -> str:
    """Return what is wrong with an entry, as somebody else may have changed it; empty: nothing."""
    if not isinstance(entry, dict):
        return f"it is a {type(entry).__name__}, not a mapping"
    if entry.get("v") != FORMAT_VERSION:
        return f"it has format {entry.get('v')!r}, and this version of Entrepot reads {FORMAT_VERSION}"
    texts = ("run", "session", "identity", "process", "project")
    if wrong := [name for name in texts if not isinstance(entry.get(name), str)]:
        return f"{wrong[0]} is {entry.get(wrong[0])!r}, not text"
    request = entry.get("request")
    if request is None:
        return ""
    if not isinstance(request, dict):
        return f"request is a {type(request).__name__}, not a mapping"
    for name, value in request.items():
        kind = _REQUEST_TYPES.get(name)
        if kind is None or not isinstance(value, kind):
            return f"request has {name} {value!r}"
        if isinstance(value, list) and not all(isinstance(each, str) for each in value):
            return f"{name} of request has {value!r}, not names"
    return ""


def _begun(entry: Mapping[str, Any]) -> float:
    """Return when a run began, as ``time.time()``; 0: the entry does not say, as somebody else has changed it."""
    begun = entry.get("begun")
    with suppress(OverflowError):  # an integer of hundreds of digits
        if isinstance(begun, (int, float)) and math.isfinite(begun):
            return float(begun)
    return 0.0


def _sorted(value: Any) -> Any:
    """Return a value in a form that is the same for equal dictionaries, whatever types their keys have."""
    if isinstance(value, Mapping):
        return sorted(([repr(key), _sorted(each)] for key, each in value.items()), key=lambda pair: pair[0])
    if isinstance(value, (set, frozenset)):
        return sorted(repr(each) for each in value)
    if isinstance(value, (list, tuple)):
        return [_sorted(each) for each in value]
    return repr(value)


def _is_plain(value: Any) -> bool:
    """Return whether JSON gives a value back as it was, NaN included, which is not equal to itself."""
    if isinstance(value, dict):
        return all(isinstance(name, str) and _is_plain(each) for name, each in value.items())
    if isinstance(value, list):
        return all(_is_plain(each) for each in value)
    return value is None or type(value) in (str, int, float, bool)


def _is_alive(process: str) -> bool:
    pid = process.partition(" ")[0]
    return pid.isdigit() and process_identity(int(pid)) == process
