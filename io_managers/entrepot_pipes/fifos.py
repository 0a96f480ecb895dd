"""Named pipes (FIFOs) for programs that open files by themselves, such as psql and sqlite3.

A reader of a FIFO cannot tell that its writer died from the end of the data. Therefore the end of a FIFO that a program
reads is kept open until everything has come; if that fails, it stays open until the program has been ended. And the end
of what a program wrote is passed on only when the program has ended without an error.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from entrepot.errors import InvalidArgument, StreamFailed

from entrepot_pipes.export_end import Export
from entrepot_pipes.fifo_guard import FifoGuard
from entrepot_pipes.import_end import Import

_BLOCK_BYTES = 1 << 20
_RETRY_SECONDS = (0.002, 0.05)  # the first pause, and the longest


class ExportFifo:
    """A FIFO that the program writes.

    States::

        waiting ──the program opens and writes it──▶ reading ──it closes it──▶ written
        written ──finish: the program ended well──▶ the importer has everything
        any ──finish: the program failed──▶ the importer fails
    """

    def __init__(self, path: Path, export: Export, broke: Callable[[Exception], None]) -> None:
        self.path = path
        self._export = export
        self._broke = broke
        self._failed = threading.Event()  # the program ended, and not well
        self._written = False  # whether the program opened and closed it
        _make(path)
        # Without waiting for the program, which may never open it.
        self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        _enlarge(self._descriptor)
        self._stop_reading, self._stop = os.pipe()
        self._thread = threading.Thread(target=self._run, name=f"reader of {path.name}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        poller = select.poll()
        poller.register(self._descriptor, select.POLLIN)
        poller.register(self._stop_reading, select.POLLIN)
        try:
            while True:
                events = dict(poller.poll())
                if self._descriptor not in events:
                    return  # the program has ended, and everything that it wrote was read
                try:
                    data = os.read(self._descriptor, _BLOCK_BYTES)
                except BlockingIOError:
                    continue
                if not data:
                    self._written = True
                    return
                self._export.write_text(data)
        except Exception as error:
            os.close(self._descriptor)  # the program gets EPIPE, as from any reader that is gone
            self._descriptor = -1
            if not self._failed.is_set():
                self._broke(error)

    def finish(self, failure: str) -> None:
        """The program has ended; ``failure`` says how, unless it ended well. Nobody else may have the FIFO open.

        Raises:
            StreamFailed, Timeout and others: the importer does not get everything.
        """
        if failure:
            self._failed.set()
            self._export.cancel(failure)
        os.close(self._stop)
        self._thread.join()
        os.close(self._stop_reading)
        more = False
        if self._descriptor >= 0:
            with suppress(BlockingIOError):
                more = self._written and bool(os.read(self._descriptor, 1))
            os.close(self._descriptor)
        if not failure and not self._written:
            failure = f"the program ended without writing {self.path}"
        if not failure and more:
            failure = f"the program opened {self.path} twice"
        if failure:
            was_closed = self._export.closed
            self._export.abort(failure)
            if not was_closed:
                raise StreamFailed(failure)
        else:
            self._export.close()


class ImportFifo:
    """A FIFO that the program reads.

    States::

        waiting ──the program opens it──▶ writing ──all is written──▶ closed: the program sees the end
            │                                └──the source fails──▶ broken: open until the program has been ended
            └──finish: the program has ended──▶ given up: the exporter fails
    """

    def __init__(
        self, path: Path, source: Import, broke: Callable[[Exception], None], guard: FifoGuard, early_end: bool = False
    ) -> None:
        self.path = path
        self._allows_early_end = early_end
        self._guard = guard
        self._source = source
        self._broke = broke
        self._descriptor = -1  # of the writing end; used by the thread until it has ended
        self._stop = threading.Event()
        _make(path)
        self._thread = threading.Thread(target=self._run, name=f"writer of {path.name}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._open()
            if self._descriptor < 0:
                return
            while data := self._source.read_text(_BLOCK_BYTES):
                if not self._write(data):
                    if self._allows_early_end:
                        self._source.close()  # takes the rest, so that the exporter ends well
                        self._guard.release(self._descriptor)
                        self._descriptor = -1
                    return
            self._guard.release(self._descriptor)
            self._descriptor = -1
        except Exception as error:
            if not self._stop.is_set():
                self._broke(error)

    def _open(self) -> None:
        """Wait for the program. The kernel tells nobody when a FIFO's reader comes, except who opens it."""
        pause, longest = _RETRY_SECONDS
        while not self._stop.is_set():
            try:
                self._descriptor = os.open(self.path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
                self._stop.wait(pause)
                pause = min(2 * pause, longest)
                continue
            os.set_blocking(self._descriptor, True)
            _enlarge(self._descriptor)
            self._guard.keep(self._descriptor)
            return

    def _write(self, data: bytes) -> bool:
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._descriptor, view) :]
            except BrokenPipeError:  # the program stopped reading
                return False
        return True

    def finish(self, failure: str) -> None:
        """The program has ended. What it did not read is lost, and its exporter fails.

        Raises:
            StreamFailed: the program did not read everything, although it ended well.
        """
        self._stop.set()
        if failure or not self._allows_early_end:
            self._source.cancel(failure or "the program has ended")
        self._thread.join()
        complete = self._descriptor < 0 and self._source.ended
        if self._descriptor >= 0:
            self._guard.release(self._descriptor)
        was_closed = self._source.closed
        self._source.close()
        if not complete and not failure and not was_closed:
            raise StreamFailed(f"the program ended before it had read all of {self.path}")


Fifo: TypeAlias = ExportFifo | ImportFifo


def _enlarge(descriptor: int) -> None:
    with suppress(OSError):  # beyond what this user may have; a larger buffer is only faster
        fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _BLOCK_BYTES)


def _make(path: Path) -> None:
    try:
        os.mkfifo(path, 0o600)
    except FileExistsError:
        if not path.is_fifo():
            raise InvalidArgument(f"{path} exists, and is no FIFO: remove it, or give another --folder") from None
        path.unlink()  # of a run that was killed
        os.mkfifo(path, 0o600)
