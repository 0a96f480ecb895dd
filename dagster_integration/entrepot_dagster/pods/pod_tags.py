"""Tags for ops and assets that control where their steps' pods are scheduled; plain text, without dagster-k8s."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from entrepot_operator.placement import placement_hints

if TYPE_CHECKING:
    from entrepot.ids import ObjectID
    from entrepot_operator.placement.pod_annotations import Locality, StoreRequirement

CONFIG_TAG = "dagster-k8s/config"


def placement_tags(
    *,
    reads: Iterable[str] | None = None,
    requires: Iterable[str | bytes | ObjectID] | None = None,
    locality: Locality | None = None,
    store: StoreRequirement | None = None,
    mounts: bool | None = None,
    annotations: Mapping[str, str] | None = None,
    config: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Create tags for ``@op(tags=...)`` and ``@asset(op_tags=...)``; ``entrepot_k8s_job_executor`` reads them.

    Args:
        reads: keys of steps whose outputs the step reads, and of assets as ``asset:raw/orders``; default: its inputs.
            ``[]``: it reads nothing.
        requires: IDs of further objects that it reads.
        locality: ``"preferred"`` (default), ``"required"``: only nodes that hold all of the data; or ``"off"``.
        store: whether to require nodes with a store: ``"preferred"`` (default), ``"required"`` or ``"off"``.
        mounts: whether to add socket, shared memory and environment to the pod; default: True.
        annotations: further annotations, such as those of ``entrepot_kedro.node_annotations``.
        config: further content of the tag ``dagster-k8s/config``; not modified.

    Raises:
        InvalidArgument: an argument is out of range.

    >>> tags = placement_tags(reads=["asset:raw/orders"], locality="required")
    >>> tags["dagster-k8s/config"]["pod_template_spec_metadata"]["annotations"]
    {'entrepot.dev/reads': 'asset:raw/orders', 'entrepot.dev/locality': 'required'}
    """
    placement_annotations = placement_hints.build_annotations(
        reads=reads, requires=requires, locality=locality, store=store, mounts=mounts
    )
    merged_config = dict(config or {})
    metadata = dict(merged_config.get("pod_template_spec_metadata") or {})
    metadata["annotations"] = {**(metadata.get("annotations") or {}), **(annotations or {}), **placement_annotations}
    merged_config["pod_template_spec_metadata"] = metadata
    return {CONFIG_TAG: merged_config}
