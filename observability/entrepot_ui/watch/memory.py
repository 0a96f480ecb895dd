"""A store's memory as parts that add up to its capacity."""

from __future__ import annotations

from typing import Any

from entrepot._cli.daemon import kept_bytes

from entrepot_ui.watch.details import Details


def memory_parts(status: dict[str, Any]) -> list[dict[str, Any]]:
    """The parts of the capacity, in the order in which a map shows them."""
    payload = status["used_bytes"] - status["record_bytes"]
    pinned = min(status["pinned_bytes"], payload)
    leased = max(0, min(status["leased_bytes"], status["budget"]["items"]["segments"] - payload))
    kept = kept_bytes(status)
    warm = min(status["warm_bytes"], kept)
    free = status["budget"]["free_bytes"]
    parts = [
        ("pinned", "pinned by readers", pinned),
        ("values", "values that nobody pins", payload - pinned),
        ("leased", "leased to writers", leased),
        ("warm", "warm, kept for the next puts", warm),
        ("kept", "free in segments", kept - warm),
        ("free", "not taken from the machine", free),
    ]
    named_bytes = sum(nbytes for _, _, nbytes in parts)
    parts.insert(3, ("tables", "metadata and the store's tables", max(0, status["capacity_bytes"] - named_bytes)))
    return [{"key": key, "label": label, "nbytes": nbytes} for key, label, nbytes in parts]


def sharing(details: Details) -> dict[str, Any]:
    """Own and shared bytes of the largest objects together; each stored byte is counted once."""
    own = sum(item["own_bytes"] for item in details.objects)
    shared = sum(item["shared_bytes"] for item in details.objects)
    return {
        "own_bytes": own - shared,
        "shared_bytes": shared,
        "referenced_bytes": sum(item["referenced_bytes"] for item in details.objects),
        "objects": len(details.objects),
        "complete": details.complete,
    }
