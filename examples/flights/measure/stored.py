"""Determines which bytes a task copied into shared memory.

A store counts each blob once, however many objects share it. After each save by Entrepot, outside the measured time,
the task's process lists the blobs of all objects and records them. A blob recorded before has the same index and
generation, so it counts once.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

SUFFIX = ".blobs"


@dataclass(frozen=True)
class Blob:
    """A range of shared memory.

    Attributes:
        index, generation: together they identify it for the store's whole life.
        nbytes: its length.
    """

    index: int
    generation: int
    nbytes: int


def read_blobs(folder: Path) -> list[Blob]:
    """All blobs recorded in a meter's directory."""
    return [
        Blob(*json.loads(line))
        for file in folder.glob(f"*{SUFFIX}")
        for line in file.read_text(encoding="utf-8").splitlines()
    ]


def copied_bytes(blobs: Iterable[Blob]) -> int:
    """Their total size, counting each blob once."""
    return sum(blob.nbytes for blob in set(blobs))


def record_blobs(folder: Path) -> None:
    """Record the blobs of all current objects in this process's scope, in all sessions.

    Raises:
        StoreUnavailable: the store cannot be reached.
    """
    import entrepot

    blobs: list[Blob] = []
    with entrepot.connect() as store:
        for session in store.sessions():
            for item in store.list(session=session.session):
                blobs += [Blob(blob["blob"], blob["generation"], blob["length"]) for blob in store.info(item.id).blobs]
    write_blobs(folder, blobs)


def write_blobs(folder: Path, blobs: Iterable[Blob]) -> None:
    """Record blobs in a file of this process."""
    lines = "".join(json.dumps([blob.index, blob.generation, blob.nbytes]) + "\n" for blob in blobs)
    if lines:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / f"{os.getpid()}{SUFFIX}").open("a", encoding="utf-8") as file:
            file.write(lines)
