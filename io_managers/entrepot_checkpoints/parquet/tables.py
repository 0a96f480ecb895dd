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

from entrepot_checkpoints.manifests.manifest import Manifest, SavedObject, TableFile
from entrepot_checkpoints.name_binding import bind_names
from entrepot_checkpoints.progress import ProgressCounter
from entrepot_checkpoints.save_request import SaveRequest, manifest_of
from entrepot_checkpoints.storage.directory import StorageDirectory

if TYPE_CHECKING:
    from entrepot import Store
    from entrepot.ids import ObjectID
    from entrepot.raw_objects import ObjectEntry

ARROW, PANDAS, POLARS = "pyarrow.Table", "pandas.DataFrame", "polars.DataFrame"
_KINDS = {
    ("pyarrow.lib", "Table"): ARROW,
    ("pandas", "DataFrame"): PANDAS,
    ("pandas.core.frame", "DataFrame"): PANDAS,
    ("polars.dataframe.frame", "DataFrame"): POLARS,
}
_ADVICE = "save it with format='entrepot'"


def save_tables(
    request: SaveRequest, root: StorageDirectory, name: str, earlier: Manifest | None, counter: ProgressCounter
) -> Manifest:
    """Write each object as a file, and return the manifest, which is yet to be written.

    Raises:
        UnsupportedType: an object is not a table, or Parquet would not restore it exactly.
        ObjectNotFound: it was deleted meanwhile.
    """
    saved: list[SavedObject] = []
    writer = TableWriter(request.store, root / name, earlier)
    for entry in request.objects:
        try:
            saved_object, moved = writer.write(entry)
        except ObjectNotFound:
            if request.strict:
                raise
            continue
        saved.append(saved_object)
        counter.add(entry.nbytes, moved=moved, objects=1)
    return manifest_of(request, "parquet", True, [], saved)


class TableWriter:
    """Writes tables as files of one checkpoint, reusing those of an earlier save."""

    def __init__(self, store: Store, directory: StorageDirectory, earlier: Manifest | None) -> None:
        self._store = store
        self._directory = directory
        self._earlier_objects: dict[tuple[Any, ...], SavedObject] = {}
        if earlier is not None and earlier.instance == store.instance_id and earlier.format == "parquet":
            self._earlier_objects = {(saved.id, saved.generation): saved for saved in earlier.objects}

    def write(self, entry: ObjectEntry, stem: str | None = None) -> tuple[SavedObject, int]:
        """Write one table; returns its manifest entry and the number of bytes written.

        Args:
            entry: the object.
            stem: prefix of its file name; default: the object's own name.

        Raises:
            UnsupportedType: it is not a table, or Parquet would not restore it exactly.
            ObjectNotFound: it was deleted meanwhile.
        """
        earlier = self._earlier_objects.get((entry.id, entry.generation))
        if earlier is not None and earlier.file and (stem is None or earlier.file.name.startswith(stem)):
            file = earlier.file
            if self._directory.size(file.name) == file.nbytes:
                return SavedObject(entry.id, entry.generation, earlier.type, b"", entry.names, (), file), 0
        saved = _save_table(self._store, entry, self._directory, stem)
        return saved, saved.file.nbytes if saved.file else 0


def load_tables(
    store: Store, manifest: Manifest, directory: StorageDirectory, replace: bool, counter: ProgressCounter
) -> None:
    """Read the files of a manifest and put their tables."""
    for saved in manifest.objects:
        if saved.file is None:
            raise CorruptData(f"{directory.url}: object {saved.id} of a Parquet checkpoint has no file")
        if store.instance_id != manifest.instance or not has_generation(store, saved):
            value = read_table(directory, saved.file)
            with ignore_equal_table(store, saved.id, value):
                store.put(value, id=saved.id, replace=replace)
            counter.add(0, moved=saved.file.nbytes)
        bind_names(store, saved, saved.names, replace)
        counter.add(saved.file.nbytes, objects=1)


def read_table(directory: StorageDirectory, file: TableFile) -> Any:
    """Read the table in a file, as the class that was saved.

    Raises:
        ObjectLost, CorruptData: as :func:`read_verified`.
    """
    return _from_parquet(read_verified(directory, file), file.kind, f"{directory.url}/{file.name}")


def read_verified(directory: StorageDirectory, file: TableFile) -> bytes:
    """A file's bytes, verified against their checksum.

    Raises:
        ObjectLost: it does not exist.
        CorruptData: it was changed.
    """
    try:
        data = directory.read(file.name)
    except FileNotFoundError as error:
        raise ObjectLost(f"{directory.url}/{file.name} of this checkpoint does not exist: save again") from error
    if len(data) != file.nbytes or hashlib.sha256(data).hexdigest() != file.digest:
        raise CorruptData(f"{directory.url}/{file.name} was changed after it was written: save again")
    return data


def has_generation(store: Store, saved: SavedObject) -> bool:
    """Whether the store holds exactly this generation of an object."""
    try:
        return store.generation_of(saved.id) == saved.generation
    except ObjectNotFound:
        return False


@contextmanager
def ignore_equal_table(store: Store, oid: ObjectID, value: Any) -> Iterator[None]:
    """Suppress ObjectExists if the stored table is equal: it may only be split into different pieces."""
    try:
        yield
    except ObjectExists:
        existing = store.get(oid)
        if type(existing) is not type(value) or not existing.equals(value):
            raise


def _save_table(store: Store, entry: ObjectEntry, directory: StorageDirectory, stem: str | None) -> SavedObject:
    value, generation = store.get_versioned(entry.id)
    kind = _KINDS.get((type(value).__module__, type(value).__qualname__))
    if kind is None:
        raise UnsupportedType(
            f"object {entry.id} is a {type(value).__module__}.{type(value).__qualname__}, but only tables (Arrow, "
            f"pandas, Polars) can be written as Parquet: {_ADVICE}"
        )
    _check_types(value, kind, entry)
    # Named by what never changes, so that a file named by an earlier manifest is never overwritten.
    if stem is None:
        stem = "".join(c if c.isalnum() or c in "-_." else "_" for c in entry.names[0]) if entry.names else "table"
    name = f"{stem[:80]}-{entry.id.hex()[:12]}-{store.instance_id[:8]}-{generation}.parquet"
    with directory.open(name, "wb") as file:
        digesting_file = _DigestingFile(file)
        _to_parquet(value, kind, digesting_file)
        directory.sync(name, file)
    table_file = TableFile(name, digesting_file.nbytes, digesting_file.digest.hexdigest(), kind)
    return SavedObject(entry.id, generation, kind, b"", entry.names, (), table_file)


def _check_types(value: Any, kind: str, entry: ObjectEntry) -> None:
    """Check with one row whether Parquet preserves the types."""
    sample = value.slice(0, 1) if kind == ARROW else value.head(1)
    buffer = io.BytesIO()
    try:
        _to_parquet(sample, kind, buffer)
        restored = _from_parquet(buffer.getvalue(), kind, "the trial")
    except Exception as error:  # each library has its own errors for what Parquet cannot hold
        raise UnsupportedType(f"object {entry.id} cannot be written as Parquet: {error}: {_ADVICE}") from error
    original_types, restored_types = _column_types(sample, kind), _column_types(restored, kind)
    if original_types != restored_types:
        raise UnsupportedType(
            f"object {entry.id} would change when restored from Parquet: {original_types} becomes {restored_types}: "
            f"{_ADVICE}"
        )


def _column_types(value: Any, kind: str) -> Any:
    if kind == ARROW:
        return value.schema.remove_metadata()
    if kind == POLARS:
        return dict(value.schema)
    return [
        list(value.columns),
        [str(dtype) for dtype in value.dtypes],
        str(value.index.dtype),
        list(value.index.names),
    ]


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
    raise CorruptData(f"{url} is recorded as a {kind}, which is not a supported table type")


class _DigestingFile(io.RawIOBase):
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
