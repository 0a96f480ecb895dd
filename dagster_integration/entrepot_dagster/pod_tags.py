"""Tags of ops and assets that say where the pods of their steps should run; plain text, without dagster-k8s."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from entrepot_io.placement import wishes

if TYPE_CHECKING:
    from entrepot.ids import ObjectID
    from entrepot_io.placement.asked import Locality, StoreWish

CONFIG = "dagster-k8s/config"


def placement_tags(
    *,
    reads: Iterable[str] | None = None,
    requires: Iterable[str | bytes | ObjectID] | None = None,
    locality: Locality | None = None,
    store: StoreWish | None = None,
    mounts: bool | None = None,
    annotations: Mapping[str, str] | None = None,
    config: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Tags for ``@op(tags=...)`` and ``@asset(op_tags=...)``, read by ``entrepot_k8s_job_executor`` at each launch.

    Args:
        reads: keys of steps whose outputs it reads, and of assets as ``asset:raw/orders``; default: its inputs.
            ``[]``: it reads nothing.
        requires: IDs of more objects that it reads.
        locality: ``"preferred"`` (default), ``"required"``: only nodes that hold all of it; or ``"off"``.
        store: whether only nodes with a store will do: ``"preferred"`` (default), ``"required"`` or ``"off"``.
        mounts: whether socket, shared memory and environment are put into the pod; default: True.
        annotations: more of them, such as those of ``entrepot_kedro.node_annotations``.
        config: what else the tag ``dagster-k8s/config`` says; it is not changed.

    Raises:
        InvalidArgument: an argument is out of its range.
    """
    made = wishes.annotate(reads=reads, requires=requires, locality=locality, store=store, mounts=mounts)
    whole = dict(config or {})
    metadata = dict(whole.get("pod_template_spec_metadata") or {})
    metadata["annotations"] = {**(metadata.get("annotations") or {}), **(annotations or {}), **made}
    whole["pod_template_spec_metadata"] = metadata
    return {CONFIG: whole}
