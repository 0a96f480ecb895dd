"""Former module of this class, which values pickled by earlier versions name by this path."""

from __future__ import annotations

from entrepot._client.locality import LocalitySet as LocalitySet
