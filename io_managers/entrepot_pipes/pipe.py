"""Open the ends of pipes. See ``docs/pipes.md``."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from entrepot import Store, connect
from entrepot.errors import InvalidArgument

from entrepot_pipes.export_end import Export
from entrepot_pipes.import_end import Import
from entrepot_pipes.names import MAX_VERIFIED, PipeName, parse, parse_reserved
from entrepot_pipes.worker_directory import Form, Role, join, record_of
from entrepot_pipes.worker_directory import exists as _exists

if TYPE_CHECKING:
    from entrepot_pipes.text.dialect import Dialect
    from entrepot_pipes.worker_directory import Membership

__all__ = ["Export", "Form", "Import", "exists", "open_export", "open_import"]

TIMEOUT_VARIABLE = "ENTREPOT_PIPE_TIMEOUT"
VERIFY_VARIABLE = "ENTREPOT_PIPE_VERIFY"
DEFAULT_TIMEOUT_SECONDS = 300.0

_lock = threading.Lock()
# Guarded by _lock. Key: whatever connect() would look up. A store keeps working in a forked child.
_stores: dict[tuple[str | None, ...], Store] = {}


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()  # another thread of the parent may have held it


os.register_at_fork(after_in_child=_after_fork)


def open_export(
    name: str | PipeName,
    *,
    store: Store | None = None,
    form: Form = "columns",
    dialect: Dialect | None = None,
    timeout: float | None = None,
    program: str | None = None,
    pid: int | None = None,
    verify: int | None = None,
    hints: Mapping[str, Any] | None = None,
) -> Export:
    """Open the writing end of a pipe. The first write, or ``close``, waits for the importer.

    Args:
        name: such as ``"db://orders?workers=2&query=q1"``, or the path of a reserved file.
        store: where the pipe is; ``None``: the store and session that ``entrepot.connect()`` finds.
        form: what will be written: record batches, or text.
        dialect: of the text; ``None``: as it shows.
        timeout: how many seconds to wait for the other end; ``None``: ENTREPOT_PIPE_TIMEOUT, or 300.
        program, pid: for whom this process works, as others are to see it; ``None``: for itself.
        verify: how many rows go by file too, and are compared, beside samples of later ones; ``None``: as the name
            says, or ENTREPOT_PIPE_VERIFY, or none. The larger number of both ends holds.
        hints: fields of the dialect that are known of the program, where ``dialect`` is not given.

    Raises:
        InvalidArgument: the name, or the number of workers, which others of this end gave differently.
        Timeout: an earlier transfer under this name is not over.
        StreamFailed: the importer came before, and is dead.
        StoreUnavailable: the store cannot be reached.
    """
    membership, deadline = _join("export", name, store, form, dialect, timeout, program, pid, verify)
    return Export(membership, deadline - time.monotonic(), form, dialect, hints)


def open_import(
    name: str | PipeName,
    *,
    store: Store | None = None,
    form: Form = "columns",
    dialect: Dialect | None = None,
    timeout: float | None = None,
    program: str | None = None,
    pid: int | None = None,
    verify: int | None = None,
    hints: Mapping[str, Any] | None = None,
) -> Import:
    """Open the reading end of a pipe. The first read waits for the exporter.

    Args and errors: as :func:`open_export`. ``form`` is what is to be read, and ``dialect`` that of the text; ``None``:
    that of the exporter, if it writes text, and otherwise CSV.
    """
    membership, deadline = _join("import", name, store, form, dialect, timeout, program, pid, verify)
    return Import(membership, deadline - time.monotonic(), form, dialect, hints)


def exists(name: str | PipeName, *, store: Store | None = None) -> bool:
    """Whether an exporter is registered at a pipe: what a program that looks for the file is to be told.

    Raises:
        InvalidArgument: the name is malformed.
        StoreUnavailable: the store cannot be reached.
    """
    return _exists(store or _store(), _parsed(name))


def default_timeout() -> float:
    """How many seconds an end waits for the other.

    Raises:
        InvalidArgument: ENTREPOT_PIPE_TIMEOUT is no number of seconds.
    """
    text = os.environ.get(TIMEOUT_VARIABLE, "")
    try:
        seconds = float(text) if text else DEFAULT_TIMEOUT_SECONDS
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise InvalidArgument(f"{TIMEOUT_VARIABLE} must be a number of seconds, 0 or more, but is {text!r}")
    return seconds


def default_verify() -> int:
    """How many rows are compared unless a name says so.

    Raises:
        InvalidArgument: ENTREPOT_PIPE_VERIFY is no number of rows.
    """
    text = os.environ.get(VERIFY_VARIABLE, "0") or "0"
    if not (text.isascii() and text.isdecimal()) or int(text[:9]) > MAX_VERIFIED:
        raise InvalidArgument(f"{VERIFY_VARIABLE} is a number of rows from 0 to {MAX_VERIFIED:,}, not {text!r}")
    return int(text[:9])


def _join(
    role: Role,
    name: str | PipeName,
    store: Store | None,
    form: Form,
    dialect: Dialect | None,
    timeout: float | None,
    program: str | None,
    pid: int | None,
    verify: int | None,
) -> tuple[Membership, float]:
    pipe = _parsed(name)
    if form not in ("columns", "text"):
        raise InvalidArgument(f"a pipe's form is 'columns' or 'text', not {form!r}")
    if timeout is not None and not 0 <= timeout < math.inf:
        raise InvalidArgument(f"a pipe's timeout must be a number of seconds, 0 or more, but got {timeout!r}")
    deadline = time.monotonic() + (default_timeout() if timeout is None else timeout)
    rows = pipe.verify or default_verify() if verify is None else PipeName(pipe.name, verify=verify).verify
    record = record_of(pipe, form, dialect.to_dict() if dialect else None, pid, program, rows)
    return join(store or _store(), pipe, role, record, deadline), deadline


def _parsed(name: str | PipeName) -> PipeName:
    if isinstance(name, PipeName):
        return name
    return parse(name) if name.startswith("db:") else parse_reserved(name)


def _store() -> Store:
    key = tuple(os.environ.get(f"ENTREPOT_{part}") for part in ("ADDRESS", "SCOPE", "SESSION"))
    with _lock:
        store = _stores.get(key)
        if store is None or store.closed:
            store = _stores[key] = connect(cluster=False)
        return store
