"""Metrics as text, for a server that is not prometheus_client's own."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from entrepot_metrics.store_collector import StoreCollector


def exposition(status: dict[str, Any] | None, accept: str) -> tuple[bytes, str]:
    """Return the metrics of a store, and their media type.

    Args:
        status: of the store; None: it does not answer.
        accept: the header of the request, which says which formats Prometheus understands.
    """
    registry = CollectorRegistry()
    registry.register(StoreCollector(lambda: status))
    encode, media_type = choose_encoder(accept)
    return encode(registry), media_type
