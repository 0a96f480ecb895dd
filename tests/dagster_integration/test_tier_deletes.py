"""Whether either of two tiers has an output, and how both forget it."""

# Annotations are not postponed here: Dagster looks at those of assets.

from pathlib import Path
from typing import Any

import pytest
from dagster import (
    AssetKey,
    DagsterInstance,
    FilesystemIOManager,
    InputContext,
    IOManager,
    OutputContext,
    StaticPartitionsDefinition,
    asset,
    build_output_context,
    build_resources,
    materialize,
)
from entrepot.errors import InvalidArgument
from entrepot_dagster import EntrepotIOManager, TieredIOManager
from partition_contexts import needs_partition_contexts

pytestmark = pytest.mark.usefixtures("own_store")

PARTS = StaticPartitionsDefinition(["a", "b"])


def tiers(folder: Path) -> dict[str, Any]:
    return {"io_manager": TieredIOManager(store=EntrepotIOManager(), durable=FilesystemIOManager(base_dir=str(folder)))}


@asset
def numbers() -> list[int]:
    return list(range(1000))


@asset
def total(numbers: list[int]) -> int:
    return sum(numbers)


def lose(instance: DagsterInstance, name: str) -> None:
    """Delete an asset from the store alone."""
    with build_resources({"io_manager": EntrepotIOManager()}, instance=instance) as opened:
        assert opened.io_manager.delete(build_output_context(asset_key=AssetKey(name)))


class Forgetful(IOManager):
    """A durable tier that is no folder; ``Erasable`` can delete."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    def handle_output(self, context: OutputContext, obj: Any) -> None:
        self.values[context.asset_key.to_user_string()] = obj

    def load_input(self, context: InputContext) -> Any:
        return self.values[context.asset_key.to_user_string()]


class Erasable(Forgetful):
    def delete(self, context: OutputContext) -> bool:
        return self.values.pop(context.asset_key.to_user_string(), None) is not None


def test_an_output_is_deleted_from_both_tiers(instance: DagsterInstance, tmp_path: Path) -> None:
    context = build_output_context(asset_key=AssetKey("numbers"))
    resources = tiers(tmp_path / "files")
    assert materialize([numbers], instance=instance, resources=resources).success
    with build_resources(resources, instance=instance) as opened:
        assert opened.io_manager.delete(context)
        assert not (tmp_path / "files/numbers").exists()
        assert not opened.io_manager.has_output(context)
        assert not opened.io_manager.delete(context)
    assets = [numbers, total]
    read = materialize(assets, selection=[total], instance=instance, resources=resources, raise_on_error=False)
    (failed,) = [event for event in read.all_events if event.is_step_failure]
    assert "FileNotFoundError" in str(failed.event_specific_data)
    assert "ObjectLost" in str(failed.event_specific_data)
    materialize([numbers], instance=instance, resources=resources)
    lose(instance, "numbers")
    with build_resources(resources, instance=instance) as opened:
        assert opened.io_manager.delete(context), "it was in the durable tier alone"


def test_a_durable_tier_deletes_by_its_own_method_or_nothing_is_deleted(instance: DagsterInstance) -> None:
    context = build_output_context(asset_key=AssetKey("numbers"))
    for durable in (Erasable(), Forgetful()):
        resources = {"io_manager": TieredIOManager(store=EntrepotIOManager(), durable=durable)}
        assert materialize([numbers], instance=instance, resources=resources).success
        with build_resources(resources, instance=instance) as opened:
            if isinstance(durable, Erasable):
                assert opened.io_manager.delete(context)
                assert durable.values == {}
                assert not opened.io_manager.has_output(context)
                continue
            with pytest.raises(InvalidArgument, match=r"the durable tier, Forgetful, has no method delete\(context\)"):
                opened.io_manager.delete(context)
            assert opened.io_manager.has_output(context)


@needs_partition_contexts
def test_partitions_are_looked_up_and_deleted_one_by_one(instance: DagsterInstance, tmp_path: Path) -> None:
    @asset(partitions_def=PARTS)
    def part() -> int:
        return 1

    def of(key: str) -> OutputContext:
        return build_output_context(asset_key=AssetKey("part"), partition_key=key, asset_partitions_def=PARTS)

    resources = tiers(tmp_path / "files")
    for key in ("a", "b"):
        assert materialize([part], partition_key=key, instance=instance, resources=resources).success
    with build_resources(resources, instance=instance) as opened:
        assert opened.io_manager.delete(of("a"))
        assert not opened.io_manager.has_output(of("a"))
        assert opened.io_manager.has_output(of("b"))
        assert opened.io_manager.store.delete(of("b"))
        assert opened.io_manager.has_output(of("b")), "the durable tier has it"
    assert [path.name for path in (tmp_path / "files/part").iterdir()] == ["b"]


def test_whether_either_tier_has_an_output(instance: DagsterInstance, tmp_path: Path) -> None:
    files = FilesystemIOManager(base_dir=str(tmp_path / "files"))
    tiered = TieredIOManager(store=EntrepotIOManager(), durable=files)
    with build_resources({"io_manager": tiered}, instance=instance) as opened:
        context = build_output_context(asset_key=AssetKey("numbers"))
        assert not opened.io_manager.has_output(context)
        materialize([numbers], instance=instance, resources={"io_manager": tiered})
        assert opened.io_manager.has_output(context)
        lose(instance, "numbers")
        assert not opened.io_manager.store.has_output(context)
