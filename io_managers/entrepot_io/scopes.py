"""Scopes: one per deployment of an orchestrator, so that two deployments of one user never collide.

A deployment is identified by what its orchestrator offers: Airflow's home, the ID of Dagster's run storage, the
directory of a Kedro project. Where that is not unique (two Airflow installations whose containers both have
``/opt/airflow`` and share one store), set the scope explicitly, by an argument or ``ENTREPOT_SCOPE``.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from entrepot_io.keys import shorten

MAX_SCOPE_BYTES = 160


def scope_of(orchestrator: str, identity: str, label: str = "") -> str:
    """The scope of a deployment.

    Args:
        orchestrator: ``"airflow"``, ``"dagster"`` or ``"kedro"``.
        identity: unique to this deployment.
        label: a readable name; only for display.

    >>> scope_of("kedro", "/home/ada/spaceflights", "spaceflights").startswith("kedro-spaceflights-")
    True
    """
    digest = hashlib.blake2b(identity.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
    readable = "".join(c if c.isalnum() or c in "._" else "-" for c in label).strip("-")
    return shorten("-".join(part for part in (orchestrator, readable[:64], digest) if part), MAX_SCOPE_BYTES)


def folder_scope(orchestrator: str, folder: str | os.PathLike[str]) -> str:
    """The scope of a deployment that a directory identifies.

    Args:
        orchestrator: as for :func:`scope_of`.
        folder: made absolute, links resolved; it need not exist.
    """
    path = Path(folder).expanduser().resolve()
    return scope_of(orchestrator, str(path), path.name)
