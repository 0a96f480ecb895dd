"""Checkpoints: durable copies of objects outside the store, through fsspec, which another store can load.

    store.save(oid, "s3://bucket/checkpoints/orders")
    store.load("s3://bucket/checkpoints/orders")          # here, or on another machine

    import entrepot_checkpoints
    entrepot_checkpoints.list_checkpoints("s3://bucket/checkpoints")
    entrepot_checkpoints.verify("s3://bucket/checkpoints/orders")
    entrepot_checkpoints.prune("s3://bucket/checkpoints", older_than=7 * 86400)

A checkpoint is a directory with a manifest; its parent directory is its *root*. Bytes are stored as *chunks* named by
their content, in ``ROOT/.entrepot/chunks``, which all checkpoints under a root share. The format is described in
``docs/formats/checkpoint.md``. Importing this package imports neither fsspec nor pyarrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from entrepot.lazy_imports import lazy_names

if TYPE_CHECKING:
    from entrepot_checkpoints.manifests.manifest import CheckpointInfo as CheckpointInfo
    from entrepot_checkpoints.progress import Progress as Progress
    from entrepot_checkpoints.reader import load as load
    from entrepot_checkpoints.retention import PruneReport as PruneReport
    from entrepot_checkpoints.retention import VerifyReport as VerifyReport
    from entrepot_checkpoints.retention import list_checkpoints as list_checkpoints
    from entrepot_checkpoints.retention import prune as prune
    from entrepot_checkpoints.retention import verify as verify
    from entrepot_checkpoints.writer import SaveReport as SaveReport
    from entrepot_checkpoints.writer import save as save

_HOME = {
    "CheckpointInfo": "entrepot_checkpoints.manifests.manifest",
    "Progress": "progress",
    "PruneReport": "retention",
    "SaveReport": "writer",
    "VerifyReport": "retention",
    "list_checkpoints": "retention",
    "load": "reader",
    "prune": "retention",
    "save": "writer",
    "verify": "retention",
}
__all__ = [
    "CheckpointInfo",
    "Progress",
    "PruneReport",
    "SaveReport",
    "VerifyReport",
    "list_checkpoints",
    "load",
    "prune",
    "save",
    "verify",
]

__getattr__, __dir__ = lazy_names(__name__, _HOME)
