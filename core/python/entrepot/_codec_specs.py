"""Codec specs: this package's own, and those that other packages provide as entry points."""

from __future__ import annotations

import importlib
from dataclasses import dataclass

from entrepot.errors import CodecFailed

ENTRY_POINT_GROUP = "entrepot.codecs"
COMPANION = "entrepot_io.codecs"  # shipped with this package; importing it by name is far faster than entry points


@dataclass(frozen=True, slots=True)
class CodecSpec:
    """A codec's location and the types that it supports.

    Attributes:
        name: registry name, stored in every object.
        target: ``"module:Class"``, imported on first use.
        types: exact types as ``"module:qualname"`` (``type(v).__module__ + ":" + type(v).__qualname__``).
        base_types: types whose subclasses are supported too; the first match in method resolution order wins.
    """

    name: str
    target: str
    types: tuple[str, ...] = ()
    base_types: tuple[str, ...] = ()


def type_name(cls: type) -> str:
    """Return a type's name as specs write it."""
    return f"{cls.__module__}:{cls.__qualname__}"


def companion_specs() -> list[CodecSpec]:
    """Return the specs of ``entrepot_io``; none if it is not installed."""
    try:
        specs: list[CodecSpec] = importlib.import_module(COMPANION).codec_specs()
    except ModuleNotFoundError as error:
        if error.name not in (COMPANION, COMPANION.partition(".")[0]):
            raise
        return []
    return specs


def entry_point_specs() -> list[CodecSpec]:
    """Return the specs of all installed packages.

    Raises:
        CodecFailed: a package's entry point cannot be loaded, or raises.
    """
    from importlib import metadata  # imported late: bytes need no codec, and this takes 10 ms

    specs: list[CodecSpec] = []
    for entry in metadata.entry_points(group=ENTRY_POINT_GROUP):
        try:
            specs.extend(entry.load()())
        except Exception as error:  # another package's code
            package = entry.dist.name if entry.dist is not None else "an installed package"
            raise CodecFailed(
                f"the entry point {entry.name!r} of {package} ({ENTRY_POINT_GROUP} = {entry.value}) failed: "
                f"{type(error).__name__}: {error}; repair or remove the package"
            ) from error
    return specs
