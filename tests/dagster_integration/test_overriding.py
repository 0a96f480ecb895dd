"""Methods of the IO manager that users override and call: get_metadata, has_output, delete."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from dagster import (
    AssetKey,
    DagsterInstance,
    OutputContext,
    StaticPartitionsDefinition,
    asset,
    build_output_context,
    build_resources,
    job,
    materialize,
    op,
)
from entrepot_dagster import EntrepotIOManager
from partition_contexts import needs_partition_contexts

pytestmark = pytest.mark.usefixtures("own_store")

PARTS = StaticPartitionsDefinition(["a", "b"])


class OurIOManager(EntrepotIOManager):
    """An IO manager whose metadata says a mean, and another type."""

    def get_metadata(self, context: OutputContext, obj: Any) -> Mapping[str, Any]:
        return {"mean": float(obj.mean()), "entrepot/type": f"ours of {context.name}"}


@asset
def numbers() -> Any:
    return np.arange(5)


@asset(partitions_def=PARTS)
def parts() -> Any:
    return np.arange(3)


@op
def made() -> Any:
    return np.arange(7)


def metadata_of(instance: DagsterInstance, name: str) -> dict[str, Any]:
    event = instance.get_latest_materialization_event(AssetKey(name))
    assert event is not None
    assert event.asset_materialization is not None
    return {label: entry.value for label, entry in event.asset_materialization.metadata.items()}


def test_more_metadata(instance: DagsterInstance) -> None:
    assert materialize([numbers], instance=instance, resources={"io_manager": OurIOManager()}).success
    metadata = metadata_of(instance, "numbers")
    assert (metadata["mean"], metadata["entrepot/type"]) == (2.0, "ours of result")
    assert metadata["entrepot/reference"]["type"] == "numpy.ndarray"


def test_assets_are_found_and_deleted(instance: DagsterInstance) -> None:
    materialize([numbers], instance=instance, resources={"io_manager": EntrepotIOManager()})
    with build_resources({"io_manager": EntrepotIOManager()}, instance=instance) as resources:
        context = build_output_context(asset_key=AssetKey("numbers"))
        assert resources.io_manager.has_output(context)
        assert resources.io_manager.delete(context)
        assert not resources.io_manager.has_output(context)
        assert not resources.io_manager.delete(context)


@needs_partition_contexts
def test_partitions_are_found_and_deleted(instance: DagsterInstance) -> None:
    materialize([parts], partition_key="a", instance=instance, resources={"io_manager": EntrepotIOManager()})
    stored = build_output_context(asset_key=AssetKey("parts"), partition_key="a", asset_partitions_def=PARTS)
    other = build_output_context(asset_key=AssetKey("parts"), partition_key="b", asset_partitions_def=PARTS)
    with build_resources({"io_manager": EntrepotIOManager()}, instance=instance) as resources:
        assert resources.io_manager.has_output(stored)
        assert not resources.io_manager.has_output(other)
        assert not resources.io_manager.delete(other)
        assert resources.io_manager.delete(stored)
        assert not resources.io_manager.has_output(stored)


def test_outputs_of_ops_are_found_and_deleted(instance: DagsterInstance) -> None:
    @job(resource_defs={"io_manager": EntrepotIOManager()})
    def small() -> None:
        made()

    run_id = small.execute_in_process(instance=instance).run_id
    context = build_output_context(step_key="made", name="result", run_id=run_id)
    with build_resources({"io_manager": EntrepotIOManager()}, instance=instance) as resources:
        assert resources.io_manager.has_output(context)
        assert resources.io_manager.delete(context)
        assert not resources.io_manager.has_output(context)
