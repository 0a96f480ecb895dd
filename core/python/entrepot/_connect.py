"""Former module of ``entrepot.connect``, which stores pickled by earlier versions name by this path."""

from __future__ import annotations

from entrepot._store.connection import connect as connect
