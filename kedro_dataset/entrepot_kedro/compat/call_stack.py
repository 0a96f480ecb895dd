"""Finds a dataset's catalog entry and catalog on the call stack.

Kedro creates a dataset by ``AbstractDataset.from_config(name, config, load_version, save_version)``, which passes the
configuration to the class but neither the name nor the versions. A dataset stored under its name needs them, and a
catch-all pattern of one line cannot repeat the name in each entry. So the constructor inspects its callers. Anything
but a call straight from ``from_config`` yields nothing, and the dataset then requires a ``name`` argument; a name is
never guessed.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

from kedro.io import AbstractDataset, CachedDataset

# Bounds the frames between: new_init (Kedro's wrapper) and __init__, for each subclass with its own constructor.
_MAX_CONSTRUCTOR_FRAMES = 16
_MAX_LOAD_FRAMES = 40  # bounds the frames between a dataset's load and the task that loads it


@dataclass(frozen=True)
class CatalogEntry:
    """A catalog entry.

    Attributes:
        name: name of the dataset.
        load_version: the version requested, if any.
        save_version: version of this catalog: the session ID of ``kedro run``, else the catalog's creation time.
    """

    name: str
    load_version: str | None
    save_version: str | None


def find_catalog_entry(dataset: AbstractDataset[Any, Any], frame: FrameType | None) -> CatalogEntry | None:
    """Return the catalog entry that ``dataset`` is being created for; None if it is not created by a catalog.

    Args:
        dataset: the dataset whose constructor is running.
        frame: the frame of that constructor.
    """
    from_config: CodeType = AbstractDataset.from_config.__func__.__code__  # type: ignore[attr-defined]
    for _ in range(_MAX_CONSTRUCTOR_FRAMES):
        if frame is None:
            return None
        if frame.f_code is from_config:
            break
        if frame.f_locals.get("self") is not dataset:
            return None
        frame = frame.f_back
    else:
        return None
    caller = frame.f_back
    while caller is not None:
        outer = caller.f_locals.get("self")
        if isinstance(outer, AbstractDataset):
            # Created by another dataset, which gives all its inner ones its name. A CachedDataset has exactly one.
            return find_catalog_entry(outer, caller) if type(outer) is CachedDataset else None
        caller = caller.f_back
    name, load, save = (frame.f_locals.get(key) for key in ("name", "load_version", "save_version"))
    if not isinstance(name, str):
        return None
    return CatalogEntry(name, load if isinstance(load, str) else None, save if isinstance(save, str) else None)


def catalog_of_caller(frame: FrameType | None) -> Any:
    """Find the catalog of the ``Task`` that loads a dataset; the hook called before that gets only the node.

    Args:
        frame: frame to start the search from.
    """
    from kedro.pipeline.node import Node  # not at the top: a dataset alone should not pay for importing it

    for _ in range(_MAX_LOAD_FRAMES):
        if frame is None:
            return None
        catalog = frame.f_locals.get("catalog")
        if isinstance(frame.f_locals.get("node"), Node) and hasattr(catalog, "release"):
            return catalog
        frame = frame.f_back
    return None
