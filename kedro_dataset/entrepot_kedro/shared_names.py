"""Check that no two outputs of a run are one stored value, because their catalog entries have the same name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from entrepot.errors import InvalidArgument
from entrepot_io.connections import listener_of

from entrepot_kedro.stored_datasets import stored_datasets
from entrepot_kedro.values.transcoding import plain_name

if TYPE_CHECKING:
    from kedro.pipeline import Pipeline


def check_outputs(pipeline: Pipeline, catalog: Any) -> None:
    """Report outputs that would overwrite each other, before the first node runs.

    Inputs may share a value with another dataset, as two entries may have one file.

    Raises:
        InvalidArgument: nodes write two datasets that are stored under the same name, in the same session.
    """
    outputs = pipeline.all_outputs()
    writers: dict[tuple[str, str, str, str], set[str]] = {}
    datasets = stored_datasets(catalog, pipeline, pipeline)
    listeners = {address: listener_of(address) for address in {dataset.address for dataset in datasets.values()}}
    for catalog_name, dataset in datasets.items():
        if catalog_name in outputs:
            place = (listeners[dataset.address], dataset.scope, dataset.session.name, dataset.name)
            writers.setdefault(place, set()).add(plain_name(catalog_name))
    for (_, _, _, name), catalog_names in writers.items():
        if len(catalog_names) > 1:
            raise InvalidArgument(
                f"the datasets {', '.join(sorted(catalog_names))} of this run are all stored as {name!r}, so each "
                "would overwrite the others: leave out 'name' in their entry or pattern, which then gives each its own"
            )
