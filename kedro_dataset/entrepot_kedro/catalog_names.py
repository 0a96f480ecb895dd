"""Names for the datasets of a catalog's configuration.

Kedro creates a dataset from its entry's arguments alone, so a dataset that is stored under its entry's name needs it
among these. An entry ``features`` gets ``name: features``, and a pattern ``"{space}.int_{rest}"`` gets itself as the
name, which Kedro then fills in for each dataset that matches it. The plugin's hook does so for the catalog of each
session of Kedro; a catalog that is built in Python gets it by :func:`catalog_config`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from os import urandom
from typing import Any

from entrepot_kedro.compat.datasets import is_cache_type

# The class, as a catalog may write it; other classes are given as such, since importing what a catalog names is slow.
_STORED_TYPES = ("entrepot_kedro.EntrepotDataset", "entrepot_kedro.dataset.EntrepotDataset")


def catalog_config(config: Mapping[str, Any], *, run_id: str | None = None) -> dict[str, Any]:
    """Return a catalog's configuration in which each ``EntrepotDataset`` has its name and its run.

        catalog = DataCatalog.from_config(catalog_config({"{name}": {"type": "entrepot_kedro.EntrepotDataset"}}))

    Only catalogs that Python code builds need it: ``kedro run``, ``KedroSession`` and notebooks do the same by the
    plugin's hooks.

    Args:
        config: what ``DataCatalog.from_config`` takes; it is not changed.
        run_id: the run whose session the values belong to; default: a new one, so that two catalogs of one process
            never share values unless they are meant to. As no other process can know it, its values are removed when
            this process exits.

    Raises:
        InvalidArgument: it is not a mapping of entries by name.
    """
    if not isinstance(config, Mapping) or not all(isinstance(name, str) for name in config):
        from entrepot.errors import InvalidArgument  # not at the top: projects without a store import this too

        raise InvalidArgument(
            "the configuration of a catalog is a mapping of entries by name, as in a project's catalog.yml, and not "
            f"{config!r}"
        )
    if run_id is None:
        run_id = f"{time.strftime('%Y-%m-%dT%H.%M.%S', time.gmtime())}-{urandom(4).hex()}"
        from entrepot_io.sessions import run_session  # not at the top, as above

        from entrepot_kedro.values.process_session import add_own_session

        add_own_session(run_session("kedro", run_id))
    return named_entries(config, {"run_id": run_id})


def named_entries(config: Mapping[str, Any], arguments: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return a catalog's configuration in which each ``EntrepotDataset`` has its name.

    Args:
        config: the configuration; it is not changed. Entries that are equal to the result's are the same objects.
        arguments: further arguments of each of them, unless it has its own.
    """
    return {name: _named(name, entry, dict(arguments or {})) for name, entry in config.items()}


def _named(name: str, entry: Any, arguments: dict[str, Any]) -> Any:
    if not isinstance(entry, Mapping):  # an anchor of YAML, or a mistake, which Kedro reports
        return entry
    dataset_type: Any = entry.get("type")
    if _is_stored(dataset_type):
        return {"name": name} | arguments | dict(entry)
    if is_cache_type(dataset_type) and "dataset" in entry:
        inner = _named(name, entry["dataset"], arguments)
        return entry if inner is entry["dataset"] else dict(entry) | {"dataset": inner}
    return entry


def _is_stored(dataset_type: Any) -> bool:
    if isinstance(dataset_type, type):
        from entrepot_kedro.dataset import EntrepotDataset

        return issubclass(dataset_type, EntrepotDataset)
    return dataset_type in _STORED_TYPES
