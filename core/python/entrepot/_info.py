"""Former module of these classes, which values pickled by earlier versions name by this path."""

from __future__ import annotations

from entrepot._client.info import ObjectInfo as ObjectInfo
from entrepot._client.info import PutResult as Receipt  # noqa: F401
from entrepot._client.info import SessionInfo as SessionInfo
