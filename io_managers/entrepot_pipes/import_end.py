"""The reading end of a pipe. See ``open_import``."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any, NoReturn

import pyarrow as pa
from entrepot import StreamReader
from entrepot.errors import InvalidArgument, StreamEnded, Timeout

from entrepot_pipes import chunks
from entrepot_pipes.text.dialect import Dialect
from entrepot_pipes.text.parser import TextBlock, TextParser
from entrepot_pipes.text.writer import TextWriter
from entrepot_pipes.verification import Sample, check_batch, check_bytes, check_text, comparing, sample_of
from entrepot_pipes.worker_directory import Form, Membership, data_name

_WATCH_SECONDS = 0.5  # how often somebody who waits for rows looks whether all exporters are alive


class Import:
    """One reader of a pipe. Created by :func:`open_import`; an iterator over record batches, or a source of text.

    States::

        registered ──first read──▶ reading ──the end of all its exporters──▶ ended: it has everything
            └──────────────────────────└──close, an exception in the block, end of the process──▶
               given up: the exporters fail

    For one thread at a time. It belongs to the process that opened it.
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
        self._deadline = time.monotonic() + timeout
        self._form: Form = form
        self._dialect = dialect
        # What is written if neither end says its dialect.
        self._default = Dialect(**hints) if hints else None
        self._pid = os.getpid()
        self._reader: StreamReader | None = None  # None: not connected
        self._exporters: range | None = None  # the ranks of those that write to this importer
        self._all_came = False
        self._ended = False
        self._closed = False
        self._schema: pa.Schema | None = None
        self._source: Iterator[Any] | None = None  # of batches or of text, as the form says
        self._first: pa.RecordBatch | None = None  # read for the schema, and not returned yet
        self._text = memoryview(b"")  # read, and not returned yet

    @property
    def schema(self) -> pa.Schema:
        """The columns; waits for the first rows. Empty if nothing comes, as at a spare importer.

        Raises: as iterating.
        """
        if self._schema is None and self._first is None:
            self._first = self._next_batch()
        return self._schema if self._schema is not None else pa.schema([])

    @property
    def ended(self) -> bool:
        """Whether everything that the exporters wrote was read."""
        return self._ended and not self._text

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        """The next rows.

        A block of text whose values do not fit the types of the first block comes as columns of strings.

        Raises:
            StopIteration: all exporters have closed, and everything was read.
            Timeout: no exporter came.
            StreamFailed: a worker of either end died or gave up: what was read is not everything.
            InvalidArgument: opened with ``form="text"``, after ``close``, or after a fork; a text without columns.
        """
        batch, self._first = self._first, None
        batch = batch if batch is not None else self._next_batch()
        if batch is None:
            raise StopIteration
        return batch

    def read_text(self, n: int = -1) -> bytes:
        """Text: up to ``n`` bytes, and at least one unless it has ended; with -1, all.

        Raises: as iterating.
        """
        if self._form != "text":
            raise InvalidArgument("this end was opened with form='columns': iterate, or open it with form='text'")
        if n < 0:
            parts = [bytes(self._text)]
            self._text = memoryview(b"")
            while (block := self._next_text()) is not None:
                parts.append(block)
            return b"".join(parts)
        while n and not self._text:
            block = self._next_text()
            if block is None:
                return b""
            self._text = memoryview(block)
        data, self._text = bytes(self._text[:n]), self._text[n:]
        return data

    def close(self) -> None:
        """Stop reading. Before the end, that means giving up, and the exporters fail. Closing twice is harmless.

        With ``early_end=true`` in the name, the rest is taken and thrown away instead, and the exporters end well.
        Errors are those of iterating.
        """
        if self._membership.pipe.early_end and not (self._closed or self._ended or self._pid != os.getpid()):
            self._text, self._first = memoryview(b""), None
            while self._next_of(self._batches if self._form == "columns" else self._texts) is not None:
                pass
        self._close(f"the importer (process {self._membership.record.pid}) stopped reading before the end")

    def cancel(self, reason: str) -> None:
        """Let a read of another thread, which waits, fail soon with this reason."""
        self._membership.cancel(reason)

    def _close(self, reason: str) -> None:
        if self._closed or self._pid != os.getpid():
            return
        self._closed = True
        if self._reader is not None:
            self._reader.close()
        if not self._ended:
            self._membership.fail(reason)

    # --- rows and text

    def _next_batch(self) -> pa.RecordBatch | None:
        if self._form != "columns":
            raise InvalidArgument("this end was opened with form='text': use read_text, or open it with 'columns'")
        batch: pa.RecordBatch | None = self._next_of(self._batches)
        if batch is not None and self._schema is None:
            self._schema = batch.schema
        return batch

    def _next_text(self) -> bytes | None:
        text: bytes | None = self._next_of(self._texts)
        return text

    def _next_of(self, source: Any) -> Any:
        if self._pid != os.getpid():
            raise InvalidArgument(
                f"this end of pipe {self._membership.pipe.key} was opened by process {self._pid}, before a fork: open "
                f"another one in process {os.getpid()}, with workers=N at this end"
            )
        if self._closed:
            raise InvalidArgument(f"this end of pipe {self._membership.pipe.key} was closed: open another one")
        iterator = self._source = self._source or source()
        try:
            return next(iterator, None)
        except BaseException as error:
            self._gave_up(error)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        for chunk, sample in self._chunks():
            block = chunks.text_block_of(chunk)
            if sample is not None:
                with comparing(sample):
                    check_batch(self._membership.pipe.key, chunk, sample)
            yield from [chunk] if block is None else self._strings_of(block)

    def _texts(self) -> Iterator[bytes]:
        writer: TextWriter | None = None
        schema: pa.Schema | None = None
        for chunk, sample in self._chunks():
            if isinstance(chunk, (bytes, bytearray, memoryview)):
                data = bytes(chunk)
                if sample is not None:
                    with comparing(sample):
                        check_bytes(self._membership.pipe.key, data, sample)
                yield data
                continue
            block = chunks.text_block_of(chunk)
            if writer is None:
                writer = TextWriter(self._dialect or (block.dialect if block else self._default))
            if block is not None and block.dialect == writer.dialect:
                yield block.data
                continue
            for batch in [chunk] if block is None else self._strings_of(block):
                first, schema = schema is None, batch.schema
                self._schema = schema
                text = writer.write(batch)
                if sample is not None:
                    key = self._membership.pipe.key
                    with comparing(sample):
                        check_batch(key, batch, sample)
                        check_text(key, text, writer.dialect, schema, first, sample)
                if text:
                    yield text
        if writer is not None and (text := writer.finish(schema)):
            yield text

    def _strings_of(self, block: TextBlock) -> list[pa.RecordBatch]:
        """A block of text, as columns of strings."""
        first = self._schema is None
        dialect = block.dialect if first else replace(block.dialect, header=False)
        parser = TextParser(dialect, infer=False)
        batches: list[pa.RecordBatch] = []
        for part in [*parser.feed(block.data), *parser.finish()]:
            if isinstance(part, TextBlock):
                raise InvalidArgument(
                    f"pipe {self._membership.pipe.key}: the exporter's text has no columns: {part.reason}. Give its "
                    "dialect, or import it as text"
                )
            if self._schema is not None and dialect.kind == "csv":
                if part.num_columns != len(self._schema):
                    raise InvalidArgument(
                        f"pipe {self._membership.pipe.key}: a block of the exporter's text has {part.num_columns} "
                        f"columns, and those before {len(self._schema)} ({block.reason})"
                    )
                part = part.rename_columns(self._schema.names)
            batches.append(part)
        return batches

    # --- chunks

    def _chunks(self) -> Iterator[tuple[Any, Sample | None]]:
        """Everything that the exporters write, without their headers, until all have closed; and what it is to be
        compared with."""
        membership = self._membership
        exporters = membership.wait_for(0, self._deadline).workers
        importers, rank = membership.record.workers, membership.rank
        self._exporters = range(rank, exporters, importers)
        if not self._exporters:  # a spare importer
            self._end()
            return
        stream = membership.store.stream(
            data_name(membership.pipe, rank), writers=len(self._exporters), cluster=False, capacity=None
        )
        self._reader = stream.reader("importer")
        while True:
            try:
                chunk = self._reader.get(timeout=_WATCH_SECONDS)
            except Timeout:
                self._check_exporters()
                continue
            except StreamEnded:
                break
            if not chunks.is_header(chunk):
                yield sample_of(chunk)
                continue
            header = chunks.Header.from_chunk(chunk)
            if self._dialect is None and header.dialect is not None and self._form == "text":
                self._dialect = Dialect.from_dict(header.dialect)
        self._end()

    def _check_exporters(self) -> None:
        """See to it that all exporters are alive; after the deadline, also that all came."""
        self._membership.check()
        if self._all_came:
            return
        missing = [rank for rank in self._exporters or () if not self._membership.has_come(rank)]
        self._all_came = not missing
        if missing and time.monotonic() > self._deadline:
            raise self._membership.nobody_came(missing[0])

    def _end(self) -> None:
        self._ended = True
        if self._reader is not None:
            self._reader.close()
        self._membership.finish()

    def _gave_up(self, error: BaseException) -> NoReturn:
        """Tell the exporters, and raise."""
        explained = self._membership.cause_of(error)
        self._close(f"{type(error).__name__}: {error}")
        if explained is error:
            raise error
        raise explained from error

    def __enter__(self) -> Import:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._close(f"{kind.__name__}: {error}")

    def __repr__(self) -> str:
        return f"<entrepot_pipes.Import from {self._membership.pipe}{' (closed)' if self._closed else ''}>"
