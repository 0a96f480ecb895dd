"""``entrepot ls --physical``: the bytes that objects occupy, each stored byte counted once."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from entrepot._cli.common import human_bytes, table
from entrepot._client.info import split_by_owner
from entrepot._store.object_info import info_of
from entrepot.errors import ObjectDropped, ObjectLost, ObjectNotFound

if TYPE_CHECKING:
    from entrepot import _core
    from entrepot._client.info import ObjectInfo


@dataclass(frozen=True, slots=True)
class PhysicalUse:
    """What one object, or all listed objects together, occupy.

    Attributes:
        own_bytes: bytes that no older object holds.
        shared_bytes: the part of them that other objects refer to, too.
        referenced_bytes: bytes in use that older objects hold.
        memory_bytes: shared memory of the blobs among ``own_bytes``, with alignment.
        disk_bytes: the blobs among ``own_bytes`` that are only on disk, before compression.
        record_bytes: metadata, which includes payloads of up to 16 KiB.
    """

    own_bytes: int = 0
    shared_bytes: int = 0
    referenced_bytes: int = 0
    memory_bytes: int = 0
    disk_bytes: int = 0
    record_bytes: int = 0


def physical_infos(client: _core.Client, listed: Iterable[ObjectInfo]) -> list[ObjectInfo]:
    """Return the full metadata of listed objects, without those that are gone by now."""
    infos = []
    for item in listed:
        with suppress(ObjectNotFound, ObjectLost, ObjectDropped):
            infos.append(info_of(client, item.id))
    return infos


def physical_use(info: ObjectInfo) -> PhysicalUse:
    """Return what an object occupies."""
    own, _ = split_by_owner(str(info.id), info.blobs)
    return PhysicalUse(
        own_bytes=info.own_bytes,
        shared_bytes=info.shared_bytes,
        referenced_bytes=info.referenced_bytes,
        memory_bytes=sum(blob["extent"] for blob in own),
        disk_bytes=sum(blob["length"] for blob in own if not blob["resident"]),
        record_bytes=info.record_bytes,
    )


def physical_report(infos: list[ObjectInfo], status: dict[str, Any], *, complete: bool) -> dict[str, Any]:
    """Return the report as JSON: the objects, their total, and what the store as a whole has in use.

    Args:
        infos: the objects.
        status: the store's status, read after them.
        complete: they are all objects of the store, so that the total can be compared with its status.
    """
    uses = [physical_use(info) for info in infos]
    total = {name: sum(getattr(use, name) for use in uses) for name in PhysicalUse.__slots__}
    # Counted by blob, not by owner: what these objects keep, whoever owns it.
    kept = {(blob["blob"], blob["generation"]): blob for info in infos for blob in info.blobs}
    total["kept_memory_bytes"] = sum(blob["extent"] for blob in kept.values())
    total["kept_disk_bytes"] = sum(blob["length"] for blob in kept.values() if not blob["resident"])
    in_use = status["used_bytes"] - status["record_bytes"]
    return {
        "objects": [
            {"id": str(info.id), "names": info.names, "type": info.type, "nbytes": info.nbytes, **asdict(use)}
            for info, use in zip(infos, uses, strict=True)
        ],
        "total": total,
        "store": {
            "memory_bytes": in_use,
            "disk_bytes": status["spilled_bytes"],
            "record_bytes": status["record_bytes"],
            "unlisted_memory_bytes": in_use - total["kept_memory_bytes"] if complete else None,
        },
    }


def format_physical(report: dict[str, Any], labels: list[str]) -> str:
    """Format the report for people; ``labels`` describe the types of its objects."""
    columns = ("own_bytes", "shared_bytes", "referenced_bytes", "memory_bytes", "disk_bytes", "record_bytes")
    rows = [
        [item["id"], *(human_bytes(item[name]) for name in columns), label, ", ".join(item["names"])]
        for item, label in zip(report["objects"], labels, strict=True)
    ]
    total, store = report["total"], report["store"]
    rows.append(["total", *(human_bytes(total[name]) for name in columns), "", ""])
    header = ["id", "own", "shared", "referenced", "in memory", "on disk", "metadata", "type", "names"]
    lines = [table(rows, header)]
    kept = total["kept_memory_bytes"]
    if kept != total["memory_bytes"]:
        lines.append(f"These objects keep {human_bytes(kept)} in memory; what is not in the total has other owners.")
    lines.append(
        f"The store has {human_bytes(store['memory_bytes'])} of payload in memory (used, without metadata) and "
        f"{human_bytes(store['disk_bytes'])} on disk."
    )
    if store["unlisted_memory_bytes"]:
        lines.append(
            f"{human_bytes(store['unlisted_memory_bytes'])} of it belong to objects that are not listed: deleted but "
            "still being read, or stored since."
        )
    return "\n".join(lines)
