"""The writing end of a pipe. See ``open_export``."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any, NoReturn

import pyarrow as pa
from entrepot import StreamWriter
from entrepot._client.writer_context import WriterContext
from entrepot.errors import InvalidArgument, StoreFull, Timeout

from entrepot_pipes import chunks
from entrepot_pipes.text.dialect import Dialect
from entrepot_pipes.text.parser import TextBlock, TextParser
from entrepot_pipes.verification import SampleWriter, WriteRows, sampled_chunk
from entrepot_pipes.worker_directory import Form, Membership, data_name

# Small batches and texts are collected up to this size, because each chunk costs a request to the store.
_CHUNK_BYTES = 1 << 20
# Larger ones are cut, so that the importer works on the first part while the next one is copied.
_LARGEST_CHUNK_BYTES = 16 << 20
_CAPACITY, _CAPACITY_BYTES = 16, 64 << 20
_WATCH_SECONDS = 1.0  # how often somebody who waits for room looks whether the importer is alive
_MEMORY_SECONDS = 60.0


class Export(WriterContext):
    """One writer of a pipe. Created by :func:`open_export`; a context manager. For one thread at a time.

    States::

        registered ──first write, close──▶ connected ──close──▶ closed: the importer gets everything
            └──────────────────────────────────└──abort, an exception in the block, dropped, end of the process──▶
               aborted: the importer fails

    It belongs to the process that opened it: in a forked child it does nothing, and says so when it is written to.
    """

    def __init__(
        self,
        membership: Membership,
        timeout: float,
        form: Form,
        dialect: Dialect | None,
        hints: Mapping[str, Any] | None = None,
    ) -> None:
        self._membership = membership
        self._timeout = timeout
        self._form: Form = form
        self._dialect = dialect
        self._hints = hints  # what is known of the dialect if it is not given
        self._pid = os.getpid()
        self._writer: StreamWriter | None = None  # None: not connected
        self._done = False  # closed or aborted
        self._schema: pa.Schema | None = None
        self._batches: list[pa.RecordBatch] = []  # not sent yet, of one schema
        self._text = bytearray()  # not sent yet, of an exporter whose text passes as it is
        self._pending_bytes = 0  # of _batches
        self._samples: SampleWriter | None = None  # None: nothing is compared
        self._write_rows: WriteRows | None = None
        self._parser: TextParser | None = None  # of an exporter whose text travels as columns

    @property
    def closed(self) -> bool:
        """Whether it was closed or aborted."""
        return self._done

    def verify_with(self, write_rows: WriteRows) -> None:
        """How the library whose rows these are writes some of them to a file, for ``verify=``."""
        self._write_rows = write_rows

    def write(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Write rows. All have the columns of the first.

        Raises:
            Timeout: no importer came.
            StreamFailed: a worker of either end died or gave up; an importer also if it stopped reading.
            InvalidArgument: other columns than before, after ``close``, or after a fork.
            StoreFull, StoreUnavailable: as ``Store.put``.
        """
        if self._form != "columns":
            raise InvalidArgument("this end was opened with form='text': use write_text, or open it with 'columns'")
        self._connect()
        if self._schema is not None and not batch.schema.equals(self._schema):
            raise InvalidArgument(
                f"pipe {self._membership.pipe.key}: these rows have the columns {_described(batch.schema)}, and those "
                f"before {_described(self._schema)}"
            )
        try:
            self._send_batches(chunks.batches_of(batch))
        except BaseException as error:
            self._gave_up(error)

    def write_text(self, data: bytes | bytearray | memoryview) -> None:
        """Write text, cut anywhere. Errors: as :meth:`write`."""
        if self._form != "text":
            raise InvalidArgument("this end was opened with form='columns': use write, or open it with 'text'")
        self._connect()
        try:
            if self._parser is not None:
                self._send_parsed(self._parser.feed(data))
                return
            self._text += data
            if len(self._text) >= _CHUNK_BYTES:
                self._send_text()
        except BaseException as error:
            self._gave_up(error)

    def flush(self) -> None:
        """Send what has been written so far; text that travels as columns, up to the last whole block."""
        if self._done or self._writer is None or self._pid != os.getpid():
            return
        try:
            self._send_text()
            self._send_pending()
        except BaseException as error:
            self._gave_up(error)

    def close(self) -> None:
        """Say that everything has been written, after waiting until the pipe has taken it. Closing twice is harmless.

        Raises: as :meth:`write`. Then the importer fails.
        """
        if self._done or self._pid != os.getpid():
            return
        self._connect()
        try:
            if self._parser is not None:
                self._send_parsed(self._parser.finish())
            self._send_text()
            self._send_pending()
            self._membership.check()
            assert self._writer is not None
            self._writer.close()
        except BaseException as error:
            self._gave_up(error)
        self._done = True
        self._membership.finish()

    def abort(self, reason: str) -> None:
        """Give up: the importer fails with this reason. Harmless after ``close``."""
        if self._done or self._pid != os.getpid():
            return
        self._done = True
        if self._samples is not None:
            self._samples.discard()
        if self._writer is not None:
            self._writer.abort(reason)
        self._membership.fail(reason)

    def cancel(self, reason: str) -> None:
        """Let a write or close of another thread, which waits, fail soon with this reason."""
        self._membership.cancel(reason)

    # --- connecting

    def _connect(self) -> None:
        if self._pid != os.getpid():
            raise InvalidArgument(
                f"this end of pipe {self._membership.pipe.key} was opened by process {self._pid}, before a fork: open "
                f"another one in process {os.getpid()}, with workers=N at this end"
            )
        if self._done:
            raise InvalidArgument(f"this end of pipe {self._membership.pipe.key} was closed: open another one")
        if self._writer is not None:
            return
        try:
            self._writer = self._open_writer()
        except BaseException as error:
            self._gave_up(error)

    def _open_writer(self) -> StreamWriter:
        """Wait for the importer, and open the stream that it reads."""
        membership, deadline = self._membership, time.monotonic() + self._timeout
        peer = membership.wait_for(0, deadline)
        target = membership.rank % peer.workers
        if target:
            peer = membership.wait_for(target, deadline)
        writers = len(range(target, membership.record.workers, peer.workers))
        stream = membership.store.stream(
            data_name(membership.pipe, target),
            capacity=_CAPACITY,
            capacity_bytes=_CAPACITY_BYTES,
            writers=writers,
            cluster=False,
        )
        writer = stream.writer()
        if self._form == "text":
            asked = Dialect.from_dict(peer.dialect) if peer.dialect else None
            passes = peer.form == "text" and writers == 1 and asked in (None, self._dialect)
            if not passes:
                # From text to other text, each field stays as it is to the letter.
                self._parser = TextParser(self._dialect, infer=peer.form == "columns", hints=self._hints)
        if verify := max(membership.record.verify, peer.verify):
            self._samples = SampleWriter(verify, self._parser is not None or peer.form != self._form)
            self._samples.write_rows = self._write_rows
        header = chunks.Header(self._form, self._dialect.to_dict() if self._dialect else None, membership.rank)
        writer.put(header.to_chunk(), timeout=self._timeout)
        return writer

    # --- sending

    def _send_parsed(self, blocks: list[pa.RecordBatch | TextBlock]) -> None:
        for block in blocks:
            if isinstance(block, TextBlock):
                self._send_pending()
                self._put(chunks.text_block_chunk(block))
            elif self._samples is not None and block.num_rows:
                self._send_pending()
                self._schema = block.schema
                self._put_verified(block)
            else:
                self._send_batches([block])

    def _send_batches(self, batches: list[pa.RecordBatch]) -> None:
        for batch in batches:
            if self._batches and not batch.schema.equals(self._batches[0].schema):  # JSON with more keys
                self._send_pending()
            if self._schema is not None and batch.num_rows == 0:
                continue
            self._schema = batch.schema
            self._batches.append(batch)
            self._pending_bytes += batch.nbytes
            if self._pending_bytes >= _CHUNK_BYTES:
                self._send_pending()

    def _send_pending(self) -> None:
        batches, self._batches, self._pending_bytes = self._batches, [], 0
        if batches:
            whole = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
            for part in chunks.sliced(whole, _LARGEST_CHUNK_BYTES):
                self._put_verified(part)

    def _send_text(self) -> None:
        if self._text:
            text, self._text = bytes(self._text), bytearray()
            for start in range(0, len(text), _LARGEST_CHUNK_BYTES):
                self._put_verified(text[start : start + _LARGEST_CHUNK_BYTES])

    def _put_verified(self, chunk: Any) -> None:
        """Send a chunk, and with ``verify=`` sometimes what it is to be compared with."""
        samples = self._samples
        if samples is None:
            self._put(chunk)
            return
        value = chunk
        if samples.wanted and (isinstance(chunk, bytes) or chunk.num_rows):
            if isinstance(chunk, bytes):
                sample = samples.of_bytes(chunk)
            elif self._parser is None:
                sample = samples.of_columns(chunk)
            else:
                assert self._parser.dialect is not None
                sample = samples.of_text(self._parser.last_block, chunk.num_rows, self._parser.dialect)
            value = sampled_chunk(chunk, sample)
        self._put(value)
        samples.passed(chunk)

    def _put(self, chunk: Any) -> None:
        assert self._writer is not None
        full_since = time.monotonic()
        while True:
            self._membership.check()
            try:
                self._writer.put(chunk, timeout=_WATCH_SECONDS)
                return
            except Timeout:
                full_since = time.monotonic()  # the importer is alive, and slow
            except StoreFull:
                if time.monotonic() - full_since > _MEMORY_SECONDS:
                    raise

    def _gave_up(self, error: BaseException) -> NoReturn:
        """Tell the importer, and raise."""
        explained = self._membership.cause_of(error)
        self.abort(f"{type(error).__name__}: {error}")
        if explained is error:
            raise error
        raise explained from error

    def __repr__(self) -> str:
        return f"<entrepot_pipes.Export to {self._membership.pipe}{' (closed)' if self._done else ''}>"


def _described(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} ({field.type})" for field in schema)
