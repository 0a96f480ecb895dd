"""``connect``."""

from __future__ import annotations

import os
import time

from entrepot._store.connection import connect as connect_store
from entrepot.errors import StoreUnavailable
from entrepot.plasma.client import PlasmaClient

DEFAULT_RETRIES = 50
RETRY_SECONDS = 0.1


def connect(store_socket_name: str | os.PathLike[str], num_retries: int = -1) -> PlasmaClient:
    """Connect to a store.

    Args:
        store_socket_name: path of the store's own socket (not of ``entrepot-plasma-store``'s), or its address
            ``unix:///path``. ``""``: the store that ``entrepot.connect()`` uses, which is started if necessary.
        num_retries: how often to try, ten times a second, while nothing answers there; -1: 50 times.

    Raises:
        StoreUnavailable: nothing answers there; an ``OSError``.
        VersionMismatch: another version of Entrepot answers.
    """
    name = os.fspath(store_socket_name)
    address: str | None = name or None
    if address is not None and not address.startswith("unix://"):
        address = f"unix://{os.path.abspath(address)}"
    attempts = max(1, DEFAULT_RETRIES if num_retries < 0 else num_retries)
    while True:
        attempts -= 1
        try:
            return PlasmaClient.of_store(connect_store(address, durable=False), name)
        except StoreUnavailable:
            if attempts == 0:
                raise
        time.sleep(RETRY_SECONDS)
