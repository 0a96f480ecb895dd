"""What stands in a data file's place while tests run: pipes, between the program and the file where the tests look."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator
from typing import Literal

from entrepot import Store
from entrepot.errors import EntrepotError

from entrepot_pipes.learn.supervisor import Call
from entrepot_pipes.names import PipeName
from entrepot_pipes.pipe import open_export, open_import
from entrepot_pipes.text.csv_parser import DIALECT_KEY
from entrepot_pipes.text.dialect import Dialect
from entrepot_pipes.text.writer import TextWriter

Rung = Literal["blocks", "bytes"]
_BLOCK_BYTES = 1 << 20
_SECONDS = 120.0
_numbers = itertools.count()


class Proxy:
    """Answers a program's calls about its data file with the ends of pipes. Thread-safe."""

    def __init__(self, store: Store, rung: Rung) -> None:
        self.errors: list[str] = []
        self.exports = 0
        self.imports = 0
        self._store = store
        self._rung: Rung = rung
        self._lock = threading.Lock()
        self._transfers: dict[str, list[threading.Thread]] = {}  # guarded by _lock; those that write a path

    def answer(self, call: Call) -> int | None:
        """The end of a pipe for the program, or ``None`` for the file itself."""
        if call.name == "lseek":
            return None
        with self._lock:
            writing = list(self._transfers.get(call.path, ()))
        for thread in writing:  # what was written is there before anybody looks
            thread.join(_SECONDS)
        mode = call.flags & os.O_ACCMODE
        if not call.opens or mode == os.O_RDWR or call.flags & (os.O_APPEND | os.O_DIRECTORY):
            return None
        if mode == os.O_RDONLY and not os.path.isfile(call.path):
            return None
        if mode == os.O_WRONLY and not os.path.isdir(os.path.dirname(call.path)):
            return None
        reading, writing_end = os.pipe2(os.O_CLOEXEC)
        theirs, ours = (writing_end, reading) if mode == os.O_WRONLY else (reading, writing_end)
        target = self._receive if mode == os.O_WRONLY else self._feed
        thread = threading.Thread(target=self._guarded, args=(target, ours, call.path), daemon=True)
        with self._lock:
            self.exports += mode == os.O_WRONLY
            self.imports += mode == os.O_RDONLY
            self._transfers.setdefault(call.path, []).append(thread)
        thread.start()
        return theirs

    def finish(self) -> None:
        """Wait for what is on its way, when the program has ended."""
        with self._lock:
            threads = [thread for each in self._transfers.values() for thread in each]
        for thread in threads:
            thread.join(_SECONDS)
            if thread.is_alive():
                self.errors.append(f"a transfer did not end within {_SECONDS:g} s")

    def _guarded(self, transfer: Callable[[int, str], None], descriptor: int, path: str) -> None:
        try:
            transfer(descriptor, path)
        except BrokenPipeError:
            pass  # the program stopped reading, as it may with a file
        except (EntrepotError, OSError, ValueError) as error:
            self.errors.append(f"{os.path.basename(path)}: {type(error).__name__}: {error}")
        finally:
            os.close(descriptor)

    def _receive(self, descriptor: int, path: str) -> None:
        """What the program writes goes through a pipe into the file."""
        blocks = iter(lambda: os.read(descriptor, _BLOCK_BYTES), b"")
        data = b"".join(self._through(blocks))
        with open(path, "wb") as file:
            file.write(data)

    def _feed(self, descriptor: int, path: str) -> None:
        """The file goes through a pipe to the program."""
        with open(path, "rb") as file:
            for data in self._through(iter(lambda: file.read(_BLOCK_BYTES), b"")):
                view = memoryview(data)
                while view:
                    view = view[os.write(descriptor, view) :]

    def _through(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        """Text through a pipe: as it is, or as columns."""
        name = PipeName("learn", query=f"{os.getpid()}-{next(_numbers)}")
        failed: list[Exception] = []

        def export() -> None:
            try:
                with open_export(name, store=self._store, form="text", timeout=_SECONDS) as end:
                    for block in blocks:
                        end.write_text(block)
            except EntrepotError as error:
                failed.append(error)

        thread = threading.Thread(target=export, daemon=True)
        thread.start()
        form: Literal["columns", "text"] = "columns" if self._rung == "blocks" else "text"
        with open_import(name, store=self._store, form=form, timeout=_SECONDS) as reader:
            if form == "text":
                while data := reader.read_text(_BLOCK_BYTES):
                    yield data
            else:
                writer: TextWriter | None = None
                for batch in reader:
                    writer = writer or TextWriter(dialect_of(batch.schema.metadata))
                    yield writer.write(batch)
                if writer is not None:
                    yield writer.finish()
        thread.join(_SECONDS)
        if failed:
            raise failed[0]


def dialect_of(metadata: dict[bytes, bytes] | None) -> Dialect:
    """The dialect of the text that columns were parsed from."""
    import json

    described = (metadata or {}).get(DIALECT_KEY)
    return Dialect.from_dict(json.loads(described)) if described else Dialect()
