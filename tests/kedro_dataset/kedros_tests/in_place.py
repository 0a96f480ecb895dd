"""A plugin for pytest: Kedro's own tests, with Entrepot's dataset in the place of Kedro's in-memory ones.

    cd KEDRO && python -m pytest -p in_place tests/runner tests/io/test_memory_dataset.py ...

``MemoryDataset`` and ``SharedMemoryDataset`` become datasets in the store, with their constructors' arguments, and
datasets without an entry in a catalog too. Loaded before the tests, so they import these.
"""

from __future__ import annotations

import inspect
import itertools
import os
from typing import Any

import kedro.io
import kedro.io.data_catalog
import kedro.io.memory_dataset
import kedro.io.shared_memory_dataset
from entrepot_kedro import EntrepotDataset, catalog_config
from kedro.io.memory_dataset import _EMPTY

_numbers = itertools.count()


class MemoryDataset(EntrepotDataset):
    """A dataset in the store, made as Kedro's of this name is."""

    def __init__(
        self, data: Any = _EMPTY, copy_mode: str | None = None, metadata: dict[str, Any] | None = None
    ) -> None:
        super().__init__(name=f"memory-{os.getpid()}-{next(_numbers)}", copy_mode=copy_mode, metadata=metadata)
        if data is not _EMPTY:
            inspect.unwrap(type(self).save)(self, data)


class SharedMemoryDataset(MemoryDataset):
    """A dataset in the store, made as Kedro's of this name is."""

    def __init__(self, manager: Any = None) -> None:
        super().__init__()

    def set_manager(self, manager: Any) -> None:
        """Accept the manager process, which is not needed."""


class _PatternOfEachCatalog:
    """The pattern for datasets without an entry: in each catalog a run of its own, as their values in memory are."""

    def __get__(self, catalog: object, of: type) -> dict[str, Any]:
        return catalog_config({"{default}": {"type": "entrepot_kedro.EntrepotDataset"}})


for module in (kedro.io, kedro.io.memory_dataset, kedro.io.data_catalog):
    module.MemoryDataset = MemoryDataset  # type: ignore[attr-defined]
for module in (kedro.io, kedro.io.shared_memory_dataset, kedro.io.data_catalog):
    module.SharedMemoryDataset = SharedMemoryDataset  # type: ignore[attr-defined]
for catalog in (kedro.io.DataCatalog, kedro.io.SharedMemoryDataCatalog):
    catalog.default_runtime_patterns = _PatternOfEachCatalog()  # type: ignore[assignment]
