"""Outputs in the store and in a durable tier."""

# Annotations are not postponed here: Dagster looks at those of assets.

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dagster import (
    AssetIn,
    AssetKey,
    DagsterInstance,
    FilesystemIOManager,
    Output,
    StaticPartitionsDefinition,
    asset,
    materialize,
)
from entrepot.errors import ObjectNotFound
from entrepot_dagster import EntrepotIOManager, TieredIOManager
from entrepot_io.connections import close_all, session_store
from entrepot_io.reference import Reference

pytestmark = pytest.mark.usefixtures("own_store")

PARTS = StaticPartitionsDefinition(["a", "b"])


def tiers(folder: Path, *, background: bool = False) -> dict[str, Any]:
    durable = FilesystemIOManager(base_dir=str(folder))
    return {"io_manager": TieredIOManager(store=EntrepotIOManager(), durable=durable, background=background)}


@asset
def numbers() -> Output[Any]:
    return Output(np.arange(1000), metadata={"entrepot/type": "mine"})


@asset
def total(numbers: Any) -> int:
    return int(numbers.sum())


@asset
def perhaps(numbers: np.ndarray | None) -> bool:
    return numbers is None


def metadata_of(instance: DagsterInstance, name: str) -> Any:
    event = instance.get_latest_materialization_event(AssetKey(name))
    assert event is not None
    assert event.asset_materialization is not None
    return event.asset_materialization.metadata


def lose(instance: DagsterInstance, name: str) -> None:
    reference = Reference.parse(metadata_of(instance, name)["entrepot/reference"].value)
    assert session_store(None, reference.scope, reference.session, None).delete(reference.id)


@pytest.mark.parametrize("background", [False, True], ids=["at once", "in the background"])
def test_what_the_store_has_lost_comes_from_the_durable_tier(
    background: bool, instance: DagsterInstance, tmp_path: Path
) -> None:
    resources = tiers(tmp_path / "assets", background=background)
    assert materialize([numbers], instance=instance, resources=resources).success
    (file,) = [path for path in (tmp_path / "assets").rglob("numbers") if path.is_file()]
    kept = file.read_bytes()
    file.write_bytes(b"unreadable")  # so it is the store that is read
    result = materialize([numbers, total], selection=[total], instance=instance, resources=resources)
    assert result.output_for_node("total") == 1000 * 999 // 2
    file.write_bytes(kept)
    lose(instance, "numbers")
    result = materialize([numbers, total, perhaps], selection=[total, perhaps], instance=instance, resources=resources)
    assert result.output_for_node("total") == 1000 * 999 // 2
    assert result.output_for_node("perhaps") is False


def test_metadata_of_both_tiers_and_of_the_step(instance: DagsterInstance, tmp_path: Path) -> None:
    materialize([numbers], instance=instance, resources=tiers(tmp_path))
    metadata = metadata_of(instance, "numbers")
    assert metadata["entrepot/bytes"].value == 8000
    assert Path(metadata["path"].value).is_file()
    assert metadata["entrepot/type"].value == "mine"


def test_a_store_that_is_away_is_done_without(
    instance: DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    close_all()
    monkeypatch.setenv("ENTREPOT_ADDRESS", f"unix://{tmp_path}/nothing.sock")
    result = materialize([numbers, total], instance=instance, resources=tiers(tmp_path / "assets"))
    assert result.output_for_node("total") == 1000 * 999 // 2


def test_what_neither_has_is_an_error_with_both_reasons(instance: DagsterInstance, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        materialize([numbers, total], selection=[total], instance=instance, resources=tiers(tmp_path))
    assert isinstance(caught.value.__cause__, ObjectNotFound)


@asset(partitions_def=PARTS)
def part() -> int:
    return 7


@asset(ins={"part": AssetIn(metadata={"allow_missing_partitions": True})})
def parts(part: dict[str, int]) -> dict[str, int]:
    return part


def test_a_missing_partition_is_looked_for_in_the_durable_tier(instance: DagsterInstance, tmp_path: Path) -> None:
    resources = tiers(tmp_path)
    for key in ("a", "b"):
        assert materialize([part], partition_key=key, instance=instance, resources=resources).success
    lose(instance, "part")
    result = materialize([part, parts], selection=[parts], instance=instance, resources=resources)
    assert result.output_for_node("parts") == {"a": 7, "b": 7}
