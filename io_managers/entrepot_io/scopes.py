"""Scopes: one per deployment of a host, so that two of them under one user never collide.

Each host has something that identifies a deployment: Airflow its home, Dagster the ID of its run storage, Kedro the
folder of its project. Where that is not enough (two Airflow installations whose containers both have ``/opt/airflow``
and share one store), the scope is set by hand, by an argument or ``ENTREPOT_SCOPE``.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from entrepot_io.keys import shorten

MAX_SCOPE_BYTES = 160


def scope_of(host: str, identity: str, label: str = "") -> str:
    """The scope of a deployment.

    Args:
        host: ``"airflow"``, ``"dagster"`` or ``"kedro"``.
        identity: what no other deployment has.
        label: what people call it; shown, but not relied on.

    >>> scope_of("kedro", "/home/ada/spaceflights", "spaceflights").startswith("kedro-spaceflights-")
    True
    """
    digest = hashlib.blake2b(identity.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
    readable = "".join(c if c.isalnum() or c in "._" else "-" for c in label).strip("-")
    return shorten("-".join(part for part in (host, readable[:64], digest) if part), MAX_SCOPE_BYTES)


def folder_scope(host: str, folder: str | os.PathLike[str]) -> str:
    """The scope of a deployment that a folder identifies.

    Args:
        host: as above.
        folder: made absolute, links resolved; it need not exist.
    """
    path = Path(folder).expanduser().resolve()
    return scope_of(host, str(path), path.name)
