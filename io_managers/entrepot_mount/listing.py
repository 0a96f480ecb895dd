"""The entries of a folder: what is stored directly below a name, each object in the formats that it can be read in."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

from entrepot_io.filesystem import lookup
from entrepot_io.filesystem.formats import BYTE_TYPES, FORMATS
from entrepot_io.filesystem.lookup import File

if TYPE_CHECKING:
    from entrepot import ObjectInfo, Store

_UNUSABLE = frozenset({".", ".."})  # these are names of objects like any other, but not of files
_NEEDS = {".arrow": "pyarrow", ".parquet": "pyarrow", ".csv": "pyarrow", ".orc": "pyarrow", ".npy": "numpy"}
# Whether a table fits into HDF5 depends on its rows, so `.h5` is listed for arrays only; `.feather` is `.arrow`.
_NEEDS_OF_ARRAYS = {".h5": "h5py"}


def entries(store: Store, path: str) -> Iterator[tuple[str, File | None]]:
    """Yield the names in a folder with the files that they are; None: a folder. Nothing is encoded.

    Objects that no file can show, such as collections and pickled values, are left out.
    """
    children = lookup.children_of(store, path)
    yield from ((name, None) for name in children.folders if name not in _UNUSABLE)
    folders = set(children.folders)
    for name, info in children.files.items():
        for suffix in _suffixes(info):
            shown = name + suffix
            hidden = shown in folders or (suffix and shown in children.files and _suffixes(children.files[shown]))
            if not hidden and shown not in _UNUSABLE:
                yield shown, File(store, info, FORMATS[suffix] if suffix else None)


def is_shown(file: File) -> bool:
    """Whether a file that was looked up can be read: it is bytes, or in one of its formats."""
    return file.format is not None or (file.info.type in BYTE_TYPES and file.info.collection is None)


def _suffixes(info: ObjectInfo) -> tuple[str, ...]:
    if info.collection is not None:
        return ()
    return ("",) if info.type in BYTE_TYPES else _suffixes_of_type(info.type)


@cache
def _suffixes_of_type(type_name: str) -> tuple[str, ...]:
    needs = _NEEDS | (_NEEDS_OF_ARRAYS if type_name == "numpy.ndarray" else {})
    return tuple(
        suffix
        for suffix, package in needs.items()
        if type_name in FORMATS[suffix].types and find_spec(package) is not None
    )
