"""Checkpoints: durable copies of objects outside the store, through fsspec, which another store can load.

    store.save(oid, "s3://bucket/checkpoints/orders")
    store.load("s3://bucket/checkpoints/orders")          # here, or on another machine

    from entrepot_io import checkpoints
    checkpoints.list_checkpoints("s3://bucket/checkpoints")
    checkpoints.verify("s3://bucket/checkpoints/orders")
    checkpoints.prune("s3://bucket/checkpoints", older_than=7 * 86400)

A checkpoint is a directory with a manifest; its parent directory is its *root*. Bytes are stored as *chunks* named by
their content, in ``ROOT/.entrepot/chunks``, which all checkpoints under a root share. The format is described in
``docs/formats/checkpoint.md``. Importing this package imports neither fsspec nor pyarrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from entrepot.lazy import lazy_names

if TYPE_CHECKING:
    from entrepot_io.checkpoints.keeping import PruneReport as PruneReport
    from entrepot_io.checkpoints.keeping import VerifyReport as VerifyReport
    from entrepot_io.checkpoints.keeping import list_checkpoints as list_checkpoints
    from entrepot_io.checkpoints.keeping import prune as prune
    from entrepot_io.checkpoints.keeping import verify as verify
    from entrepot_io.checkpoints.loading import load as load
    from entrepot_io.checkpoints.manifest import CheckpointInfo as CheckpointInfo
    from entrepot_io.checkpoints.progress import Progress as Progress
    from entrepot_io.checkpoints.saving import SaveReport as SaveReport
    from entrepot_io.checkpoints.saving import save as save

_HOME = {
    "CheckpointInfo": "manifest",
    "Progress": "progress",
    "PruneReport": "keeping",
    "SaveReport": "saving",
    "VerifyReport": "keeping",
    "list_checkpoints": "keeping",
    "load": "loading",
    "prune": "keeping",
    "save": "saving",
    "verify": "keeping",
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
