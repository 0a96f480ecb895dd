"""What a program has on each rank."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
from entrepot.errors import InvalidArgument, ObjectNotFound

from entrepot_frames.frame import Frame
from entrepot_frames.operators.exchange import from_table, same_columns, to_table
from entrepot_frames.operators.reading import row_ranges, scan_range
from entrepot_frames.operators.rows import Rows

if TYPE_CHECKING:
    from entrepot import Store

    from entrepot_frames.communicators.communicator import Communicator


class Env:
    """The ranks of a program, as one of them sees it; the first argument of the function that an executor runs.

    Args:
        store: the session that the program sees.
        communicator: of the ranks.

    Attributes:
        store: the session; also for values that no frame holds.
        communicator: for exchanges that no operator of frames has.
    """

    def __init__(self, store: Store, communicator: Communicator) -> None:
        self.store = store
        self.communicator = communicator

    @property
    def rank(self) -> int:
        """Of this process, from 0."""
        return self.communicator.rank

    @property
    def size(self) -> int:
        """Number of ranks."""
        return self.communicator.size

    def read_parquet(self, path: str | Path | Sequence[str | Path], *, columns: Sequence[str] | None = None) -> Frame:
        """Read Parquet files; each rank reads a range of their rows, about as many as the others.

        Args:
            path: a file, a folder, a pattern with ``*``, or a list of files; the same on all ranks. The order of rows
                is that of the files' names, or of the list.
            columns: which; default: all.

        Raises:
            ObjectNotFound: there is no such file; when rows are needed.
        """

        def evaluate() -> Rows:
            rows = scan_range(row_ranges(path, self.rank, self.size))
            return Rows(rows if columns is None else rows.select(columns))

        return Frame(self.communicator, evaluate)

    def from_local(self, rows: Any) -> Frame:
        """A frame of what this rank has: a Polars frame, an Arrow table, a pandas frame, or a dictionary of columns."""
        return Frame(self.communicator, lambda: Rows(_lazy(rows)))

    def concat(self, frames: Sequence[Frame]) -> Frame:
        """The rows of several frames of the same columns, below each other on each rank.

        Raises:
            InvalidArgument: there is none.
        """
        if not frames:
            raise InvalidArgument("concat needs at least one frame")
        return frames[0].concat(*frames[1:])

    def put(self, name: str, frame: Frame, *, replace: bool = False, timeout: float = 60) -> None:
        """Store a frame under a name, as a collection of one table for each rank, for other programs and tasks.

        ``env.get(name)`` reads it, and so does ``store.get_by_name(name)``.

        Args:
            name: in the session of ``env.store``.
            frame: what is stored.
            replace: whether a collection of this name may be replaced.
            timeout: seconds until all ranks have stored their part.

        Raises:
            ObjectExists: the name is taken by something else, and ``replace`` is False.
        """
        rows = frame.to_polars()
        with self.communicator.within("put"):
            rows = same_columns(self.communicator, rows, "put")
            if self.rank == 0 and replace:
                self.store.collection(name).discard()
            self.communicator.barrier()
            builder = self.store.collection(name)
            builder.put(to_table(rows), index=self.rank)
            self.communicator.barrier()
            if self.rank == 0:
                builder.seal(self.size, timeout=timeout)
            self.communicator.barrier()

    def get(self, name: str, *, timeout: float = 0) -> Frame:
        """A frame of a stored collection of tables, or of one table.

        Each rank gets consecutive members, without a copy; if there are fewer than ranks, a range of the rows: slices
        of the same bytes.

        Args:
            name: in the session of ``env.store``.
            timeout: seconds to wait for it; default: not at all.

        Raises:
            ObjectNotFound: there is no such name; ``Timeout`` with a timeout.
            InvalidArgument: it is neither a table nor a collection of tables.
        """
        value = self.store.get_by_name(name, timeout=timeout)
        return Frame(self.communicator, lambda: Rows(self._part(name, value)))

    def checkpoint(self, frame: Frame, name: str) -> Frame:
        """Store a frame, so that a program that is run again goes on here: then nothing before it is computed.

        Args:
            frame: is computed unless all ranks find its checkpoint.
            name: of the checkpoint, in the session of ``env.store``; ``env.forget(name)`` deletes it.

        Returns:
            a frame that reads the checkpoint. With another number of ranks, the rows are spread anew.
        """

        def evaluate() -> Rows:
            with self.communicator.within("checkpoint"):
                is_stored = self.communicator.broadcast(self._exists(name) if self.rank == 0 else None)
            if not is_stored:
                self.put(name, frame, replace=True)
            return Rows(self._part(name, self.store.get_by_name(name)))

        return Frame(self.communicator, evaluate)

    def forget(self, name: str) -> None:
        """Delete a stored frame or checkpoint; without effect if there is none."""
        with self.communicator.within("forget"):
            if self.rank == 0 and self._exists(name):
                self.store.delete(self.store.resolve(name))
            self.communicator.barrier()

    def _exists(self, name: str) -> bool:
        try:
            self.store.resolve(name)
        except ObjectNotFound:
            return False
        return True

    def _part(self, name: str, value: Any) -> pl.LazyFrame:
        members = getattr(value, "ids", None)
        if members is None:
            rows = _lazy(value).collect()
            begin, end = rows.height * self.rank // self.size, rows.height * (self.rank + 1) // self.size
            return rows.slice(begin, end - begin).lazy()
        if value.rows is None:
            raise InvalidArgument(f"{name!r} is a collection of {value.type}, not of tables")
        count = len(members)
        if count >= self.size:
            own = range(count * self.rank // self.size, count * (self.rank + 1) // self.size)
            return pl.concat([_lazy(value[index]) for index in own])  # at least one
        parts = []
        begin, end = value.rows * self.rank // self.size, value.rows * (self.rank + 1) // self.size
        offset = 0
        for index in range(count):
            rows = _lazy(value[index]).collect()
            first, last = max(begin - offset, 0), min(end - offset, rows.height)
            if first < last:
                parts.append(rows.slice(first, last - first))
            offset += rows.height
        return (pl.concat(parts) if parts else _lazy(value[0]).head(0).collect()).lazy()


def _lazy(value: Any) -> pl.LazyFrame:
    if isinstance(value, pl.LazyFrame):
        return value
    if isinstance(value, pl.DataFrame):
        return value.lazy()
    if isinstance(value, dict):
        return pl.LazyFrame(value)
    try:
        return from_table(value).lazy()
    except TypeError:
        raise InvalidArgument(
            f"a frame can be made of a Polars or pandas frame, an Arrow table or a dictionary, not of "
            f"{type(value).__name__}"
        ) from None
