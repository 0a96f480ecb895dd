"""Write-behind: a thread of the putting process writes objects after their put; flush waits for it.

    added --thread--> written           (deleted meanwhile: nothing to write)
      |         `--fails--> retried --fails--> kept as a failure, which the next flush raises
      `--fork--> not inherited by the child; only the parent writes it

Process exit waits for all pending writes, and for the thread. Objects put even later, by code that runs during
interpreter shutdown, are written synchronously by the put.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from entrepot.errors import EntrepotError, ObjectNotFound, StoreUnavailable, Timeout
from entrepot.ids import ObjectID
from entrepot.phrases import count_of

if TYPE_CHECKING:
    from entrepot import Store

ATTEMPTS = 3
PAUSE_SECONDS = 0.5  # before the second attempt; twice that before the third
EXIT_TIMEOUT_SECONDS = 300.0  # how long process exit waits


@dataclass(frozen=True, slots=True)
class _Session:
    address: str
    scope: str
    session: str


class WriteBehindQueue:
    """The objects that this process has yet to write to one URL. Thread-safe.

    Args:
        save: writes one object of a store.
        url: for messages.
        exit_seconds: how long process exit waits.
    """

    def __init__(
        self, save: Callable[[Store, ObjectID], None], url: str, *, exit_seconds: float = EXIT_TIMEOUT_SECONDS
    ) -> None:
        self._save = save
        self._url = url
        self._exit_seconds = exit_seconds
        self._reset()
        os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        self._changed = threading.Condition()
        self._pending: OrderedDict[ObjectID, _Session] = OrderedDict()  # this and the following: guarded by _changed
        self._current: ObjectID | None = None
        self._errors: dict[ObjectID, EntrepotError] = {}
        self._thread: threading.Thread | None = None
        self._exiting = False

    def add(self, store: Store, oid: ObjectID) -> None:
        """Queue an object for writing; during process exit, write it at once.

        Raises:
            Whatever ``save`` raises, during process exit.
        """
        with self._changed:
            exiting = self._exiting
            starts_thread = self._thread is None and not exiting
            if not exiting:
                self._pending[oid] = _Session(store.address, store.scope, store.session_name)
            self._errors.pop(oid, None)
            if starts_thread:
                self._thread = threading.Thread(target=self._run, name="entrepot-durable", daemon=True)
                self._thread.start()
            self._changed.notify_all()
        if exiting:
            self._save(store, oid)
        elif starts_thread:
            _register_exit_hook(self._at_exit)

    def cancel(self, oid: ObjectID) -> None:
        """Cancel the write of a deleted object; waits while that object is being written."""
        with self._changed:
            self._pending.pop(oid, None)
            self._errors.pop(oid, None)
            self._changed.wait_for(lambda: self._current != oid)

    def cancel_pending(self) -> list[ObjectID]:
        """Cancel all writes not yet begun, and return their objects."""
        with self._changed:
            pending = list(self._pending)
            self._pending.clear()
            self._changed.notify_all()
        return pending

    def flush(self, timeout: float | None) -> None:
        """Wait until nothing is left to write.

        Raises:
            Timeout: it took longer.
            StoreUnavailable, AccessDenied, StoreFull, ...: why an object could not be written; it is not retried again.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: not self._pending and self._current is None, timeout):
                remaining = len(self._pending) + (self._current is not None)
                raise Timeout(f"could not write {count_of(remaining, 'object')} to {self._url} within {timeout} s")
            errors, self._errors = self._errors, {}
        if errors:
            oid, error = next(iter(errors.items()))
            raise type(error)(
                f"{count_of(len(errors), 'object')} could not be made durable at {self._url}; the first, {oid}: "
                f"{error}. All are still in the store: retry with make_durable() or 'entrepot stop'"
            ) from error

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._pending or self._exiting)
                if not self._pending:
                    return
            with ExitStack() as connections:
                stores: dict[_Session, Store] = {}
                while self._write_next(stores, connections):
                    pass

    def _write_next(self, stores: dict[_Session, Store], connections: ExitStack) -> bool:
        """Write one object; False if there is none."""
        with self._changed:
            if not self._pending:
                return False
            oid, session = self._pending.popitem(last=False)
            self._current = oid
        error: EntrepotError | None = None
        try:
            error = self._write_with_retries(stores, connections, session, oid)
        except Exception as unexpected:  # a bug: reported by the next flush, and the thread goes on
            error = EntrepotError(f"{type(unexpected).__name__}: {unexpected}")
        finally:
            with self._changed:
                if error is not None and oid not in self._pending:
                    self._errors[oid] = error
                self._current = None
                self._changed.notify_all()
        return True

    def _write_with_retries(
        self, stores: dict[_Session, Store], connections: ExitStack, session: _Session, oid: ObjectID
    ) -> EntrepotError | None:
        import entrepot

        last_error: EntrepotError | None = None
        for attempt in range(ATTEMPTS):
            try:
                if session not in stores:
                    # A separate connection: the putter's own may be closed by now, and this one keeps the session open.
                    stores[session] = connections.enter_context(
                        entrepot.connect(session.address, scope=session.scope, session=session.session, durable=False)
                    )
                self._save(stores[session], oid)
                return None
            except ObjectNotFound:
                return None  # deleted meanwhile
            except StoreUnavailable as error:
                last_error = error
            except EntrepotError as error:
                return error
            time.sleep(PAUSE_SECONDS * 2**attempt if attempt + 1 < ATTEMPTS else 0)
        return last_error

    def _at_exit(self) -> None:
        with self._changed:
            self._exiting = True
            thread = self._thread
            self._changed.notify_all()
        deadline = time.monotonic() + self._exit_seconds
        try:
            self.flush(self._exit_seconds)
        except EntrepotError as error:
            print(f"entrepot: {error!s}", file=sys.stderr)
        # The thread still has to close its connections; the interpreter must not shut down under it.
        if thread is not None:
            thread.join(max(0.0, deadline - time.monotonic()))


def _register_exit_hook(function: Callable[[], None]) -> None:
    # Saving uses thread pools, which the interpreter shuts down before it runs atexit handlers; this hook runs earlier.
    register = getattr(threading, "_register_atexit", None)
    if register is None:
        import atexit

        register = atexit.register
    register(function)
