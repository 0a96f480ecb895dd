"""Tables as Parquet files, readable by any tool, beside a manifest that records their original types.

A table must be restored exactly: whether its column types survive is tested on its first rows before anything is
written, and its class is recorded in the manifest.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from entrepot.errors import CorruptData, ObjectExists, ObjectLost, ObjectNotFound, UnsupportedType

from entrepot_io.checkpoints.manifest import Manifest, SavedObject, TableFile
from entrepot_io.checkpoints.places import Place
from entrepot_io.checkpoints.progress import Counter
from entrepot_io.checkpoints.request import Wanted

if TYPE_CHECKING:
    from entrepot import Store
    from entrepot.ids import ObjectID
    from entrepot.parts import Listed

ARROW, PANDAS, POLARS = "pyarrow.Table", "pandas.DataFrame", "polars.DataFrame"
_KINDS = {
    ("pyarrow.lib", "Table"): ARROW,
    ("pandas", "DataFrame"): PANDAS,
    ("pandas.core.frame", "DataFrame"): PANDAS,
    ("polars.dataframe.frame", "DataFrame"): POLARS,
}
_ADVICE = "save it with format='entrepot'"


def save_tables(asked: Wanted, root: Place, name: str, earlier: Manifest | None, counter: Counter) -> Manifest:
    """Write each object as a file, and return the manifest, which is yet to be written.

    Raises:
        UnsupportedType: an object is not a table, or Parquet would not restore it exactly.
        ObjectNotFound: it was deleted meanwhile.
    """
    from entrepot_io.checkpoints.saving import manifest_of

    saved: list[SavedObject] = []
    writer = TableWriter(asked.store, root / name, earlier)
    for one in asked.objects:
        try:
            done, moved = writer.write(one)
        except ObjectNotFound:
            if asked.strict:
                raise
            continue
        saved.append(done)
        counter.add(one.nbytes, moved=moved, objects=1)
    return manifest_of(asked, "parquet", True, [], saved)


class TableWriter:
    """Writes tables as files of one checkpoint, reusing those of an earlier save."""

    def __init__(self, store: Store, place: Place, earlier: Manifest | None) -> None:
        self._store = store
        self._place = place
        self._known: dict[tuple[Any, ...], SavedObject] = {}
        if earlier is not None and earlier.instance == store.instance_id and earlier.format == "parquet":
            self._known = {(one.id, one.generation): one for one in earlier.objects}

    def write(self, listed: Listed, stem: str | None = None) -> tuple[SavedObject, int]:
        """Write one table; returns its manifest entry and the number of bytes written.

        Args:
            listed: the object.
            stem: prefix of its file name; default: the object's own name.

        Raises:
            UnsupportedType: it is not a table, or Parquet would not restore it exactly.
            ObjectNotFound: it was deleted meanwhile.
        """
        before = self._known.get((listed.id, listed.generation))
        if before is not None and before.file and (stem is None or before.file.name.startswith(stem)):
            file = before.file
            if self._place.size(file.name) == file.nbytes:
                return SavedObject(listed.id, listed.generation, before.type, b"", listed.names, (), file), 0
        done = _save_table(self._store, listed, self._place, stem)
        return done, done.file.nbytes if done.file else 0


def load_tables(store: Store, manifest: Manifest, place: Place, replace: bool, counter: Counter) -> None:
    """Read the files of a manifest and put their tables."""
    from entrepot_io.checkpoints.loading import bind_names

    for one in manifest.objects:
        if one.file is None:
            raise CorruptData(f"{place.url}: object {one.id} of a Parquet checkpoint has no file")
        if store.instance_id != manifest.instance or not is_generation(store, one):
            value = read_table(place, one.file)
            with same_table_is_success(store, one.id, value):
                store.put(value, id=one.id, replace=replace)
            counter.add(0, moved=one.file.nbytes)
        bind_names(store, one, one.names, replace)
        counter.add(one.file.nbytes, objects=1)


def read_table(place: Place, file: TableFile) -> Any:
    """Read the table in a file, as the class that was saved.

    Raises:
        ObjectLost, CorruptData: as :func:`checked_bytes`.
    """
    return _from_parquet(checked_bytes(place, file), file.kind, f"{place.url}/{file.name}")


def checked_bytes(place: Place, file: TableFile) -> bytes:
    """A file's bytes, verified against their checksum.

    Raises:
        ObjectLost: it does not exist.
        CorruptData: it was changed.
    """
    try:
        data = place.read(file.name)
    except FileNotFoundError as error:
        raise ObjectLost(f"{place.url}/{file.name} of this checkpoint is not there: save again") from error
    if len(data) != file.nbytes or hashlib.sha256(data).hexdigest() != file.digest:
        raise CorruptData(f"{place.url}/{file.name} was changed after it was written: save again")
    return data


def is_generation(store: Store, saved: SavedObject) -> bool:
    """Whether the store holds exactly this generation of an object."""
    try:
        return store.generation_of(saved.id) == saved.generation
    except ObjectNotFound:
        return False


@contextmanager
def same_table_is_success(store: Store, oid: ObjectID, value: Any) -> Iterator[None]:
    """Suppress ObjectExists if the stored table is equal: it may only be split into different pieces."""
    try:
        yield
    except ObjectExists:
        there = store.get(oid)
        if type(there) is not type(value) or not there.equals(value):
            raise


def _save_table(store: Store, listed: Listed, place: Place, stem: str | None) -> SavedObject:
    value, generation = store.get_versioned(listed.id)
    kind = _KINDS.get((type(value).__module__, type(value).__qualname__))
    if kind is None:
        raise UnsupportedType(
            f"object {listed.id} is a {type(value).__module__}.{type(value).__qualname__}, and only tables (Arrow, "
            f"pandas, Polars) are written as Parquet: {_ADVICE}"
        )
    _check_types(value, kind, listed)
    # Named by what never changes, so that a file named by an earlier manifest is never overwritten.
    if stem is None:
        stem = "".join(c if c.isalnum() or c in "-_." else "_" for c in listed.names[0]) if listed.names else "table"
    name = f"{stem[:80]}-{listed.id.hex()[:12]}-{store.instance_id[:8]}-{generation}.parquet"
    with place.open(name, "wb") as file:
        digesting = _Digesting(file)
        _to_parquet(value, kind, digesting)
        place.sync(name, file)
    written = TableFile(name, digesting.nbytes, digesting.digest.hexdigest(), kind)
    return SavedObject(listed.id, generation, kind, b"", listed.names, (), written)


def _check_types(value: Any, kind: str, listed: Listed) -> None:
    """Check with one row whether Parquet preserves the types."""
    few = value.slice(0, 1) if kind == ARROW else value.head(1)
    trial = io.BytesIO()
    try:
        _to_parquet(few, kind, trial)
        back = _from_parquet(trial.getvalue(), kind, "the trial")
    except Exception as error:  # each library has its own errors for what Parquet cannot hold
        raise UnsupportedType(f"object {listed.id} cannot be written as Parquet: {error}: {_ADVICE}") from error
    was, now = _types(few, kind), _types(back, kind)
    if was != now:
        raise UnsupportedType(
            f"object {listed.id} would not come back from Parquet as it is: {was} as {now}: {_ADVICE}"
        )


def _types(value: Any, kind: str) -> Any:
    if kind == ARROW:
        return value.schema.remove_metadata()
    if kind == POLARS:
        return dict(value.schema)
    return [list(value.columns), [str(one) for one in value.dtypes], str(value.index.dtype), list(value.index.names)]


def _to_parquet(value: Any, kind: str, file: Any) -> None:
    if kind == POLARS:
        value.write_parquet(file)
    elif kind == PANDAS:
        value.to_parquet(file, engine="pyarrow")
    else:
        import pyarrow.parquet

        pyarrow.parquet.write_table(value, file)


def _from_parquet(data: bytes, kind: str, url: str) -> Any:
    if kind == POLARS:
        import polars

        return polars.read_parquet(io.BytesIO(data))
    if kind == PANDAS:
        import pandas

        return pandas.read_parquet(io.BytesIO(data), engine="pyarrow")
    if kind == ARROW:
        import pyarrow
        import pyarrow.parquet

        return pyarrow.parquet.read_table(pyarrow.BufferReader(data))
    raise CorruptData(f"{url} is said to be a {kind}, which nobody writes")


class _Digesting(io.RawIOBase):
    """A write-through file that counts and digests its bytes."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.digest = hashlib.sha256()
        self.nbytes = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self.digest.update(view)
        self.nbytes += view.nbytes
        return cast("int", self._file.write(view))

    def tell(self) -> int:
        return self.nbytes

    def flush(self) -> None:
        if not self._file.closed:
            self._file.flush()
