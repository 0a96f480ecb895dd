"""What the tests of a directory publish and look up."""

from __future__ import annotations

import os
from collections.abc import Callable

from entrepot_cluster.directory import Directory, Registration

Join = Callable[..., Registration]
"""The fixture ``join``."""


def random_ids(count: int) -> list[bytes]:
    """IDs of objects."""
    return [os.urandom(20) for _ in range(count)]


def holders(directory: Directory, oid: bytes) -> list[str]:
    """The hosts that have an object, the newest publication first."""
    return [place.instance.host for place in directory.places([oid])[0].raise_damage()]
