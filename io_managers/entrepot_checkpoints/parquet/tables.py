"""Tables and arrays as files that any tool can read, beside a manifest that records their original types.

A value must be restored exactly: whether its types survive is tested before anything is written, and its class is
recorded in the manifest.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from entrepot.errors import CorruptData, ObjectExists, ObjectLost, ObjectNotFound

from entrepot_checkpoints.manifests.manifest import FileFormat, Manifest, SavedObject, TableFile
from entrepot_checkpoints.name_binding import bind_names
from entrepot_checkpoints.parquet import file_formats
from entrepot_checkpoints.progress import ProgressCounter
from entrepot_checkpoints.save_request import SaveRequest, manifest_of
from entrepot_checkpoints.storage.directory import StorageDirectory

if TYPE_CHECKING:
    from entrepot import Store
    from entrepot.ids import ObjectID
    from entrepot.raw_objects import ObjectEntry


def save_tables(
    request: SaveRequest,
    root: StorageDirectory,
    name: str,
    file_format: FileFormat,
    earlier: Manifest | None,
    counter: ProgressCounter,
) -> Manifest:
    """Write each object as a file, and return the manifest, which is yet to be written.

    Raises:
        UnsupportedType: an object is not of a class that the format holds, or would not be restored exactly.
        ObjectNotFound: it was deleted meanwhile.
    """
    saved: list[SavedObject] = []
    writer = TableWriter(request.store, root / name, file_format, earlier)
    for entry in request.objects:
        try:
            saved_object, moved = writer.write(entry)
        except ObjectNotFound:
            if request.strict:
                raise
            continue
        saved.append(saved_object)
        counter.add(entry.nbytes, moved=moved, objects=1)
    return manifest_of(request, file_format, True, [], saved)


class TableWriter:
    """Writes tables as files of one checkpoint, reusing those of an earlier save."""

    def __init__(
        self, store: Store, directory: StorageDirectory, file_format: FileFormat, earlier: Manifest | None
    ) -> None:
        self._store = store
        self._directory = directory
        self._format: FileFormat = file_format
        self._earlier_objects: dict[tuple[Any, ...], SavedObject] = {}
        if earlier is not None and earlier.instance == store.instance_id and earlier.format == file_format:
            self._earlier_objects = {(saved.id, saved.generation): saved for saved in earlier.objects}

    def write(self, entry: ObjectEntry, stem: str | None = None) -> tuple[SavedObject, int]:
        """Write one table; returns its manifest entry and the number of bytes written.

        Args:
            entry: the object.
            stem: prefix of its file name; default: the object's own name.

        Raises:
            UnsupportedType: it is not of a class that the format holds, or would not be restored exactly.
            ObjectNotFound: it was deleted meanwhile.
        """
        earlier = self._earlier_objects.get((entry.id, entry.generation))
        if earlier is not None and earlier.file and (stem is None or earlier.file.name.startswith(stem)):
            file = earlier.file
            if self._directory.size(file.name) == file.nbytes:
                return SavedObject(entry.id, entry.generation, earlier.type, b"", entry.names, (), file), 0
        saved = _save_table(self._store, entry, self._directory, self._format, stem)
        return saved, saved.file.nbytes if saved.file else 0


def load_tables(
    store: Store, manifest: Manifest, directory: StorageDirectory, replace: bool, counter: ProgressCounter
) -> None:
    """Read the files of a manifest and put their tables."""
    for saved in manifest.objects:
        if saved.file is None:
            raise CorruptData(f"{directory.url}: object {saved.id} of a {manifest.format} checkpoint has no file")
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
    url = f"{directory.url}/{file.name}"
    return file_formats.read(read_verified(directory, file), file.kind, file_formats.format_of(file.name, url), url)


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
        if type(existing) is not type(value) or not _equal(existing, value):
            raise


def _equal(first: Any, second: Any) -> bool:
    if hasattr(first, "equals"):
        return bool(first.equals(second))
    return bool(first.dtype == second.dtype and first.shape == second.shape and first.tobytes() == second.tobytes())


def _save_table(
    store: Store, entry: ObjectEntry, directory: StorageDirectory, file_format: FileFormat, stem: str | None
) -> SavedObject:
    value, generation = store.get_versioned(entry.id)
    what = f"object {entry.id}"
    kind = file_formats.kind_of(value, file_format, what)
    file_formats.check(value, kind, file_format, what)
    # Named by what never changes, so that a file named by an earlier manifest is never overwritten.
    if stem is None:
        stem = "".join(c if c.isalnum() or c in "-_." else "_" for c in entry.names[0]) if entry.names else "table"
    name = f"{stem[:80]}-{entry.id.hex()[:12]}-{store.instance_id[:8]}-{generation}.{file_format}"
    with directory.open(name, "wb") as file:
        digesting_file = _DigestingFile(file)
        file_formats.write(value, kind, file_format, digesting_file)
        directory.sync(name, file)
    table_file = TableFile(name, digesting_file.nbytes, digesting_file.digest.hexdigest(), kind)
    return SavedObject(entry.id, generation, kind, b"", entry.names, (), table_file)


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
