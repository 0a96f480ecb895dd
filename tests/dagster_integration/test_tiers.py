"""Outputs in the store and in a durable tier."""

# Annotations are not postponed here: Dagster looks at those of assets.

import threading
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from dagster import (
    AssetExecutionContext,
    AssetIn,
    AssetKey,
    AssetMaterialization,
    AssetObservation,
    ConfigurableIOManagerFactory,
    DagsterInstance,
    EnvVar,
    FilesystemIOManager,
    InitResourceContext,
    InputContext,
    IOManager,
    MetadataValue,
    Output,
    OutputContext,
    StaticPartitionsDefinition,
    asset,
    build_output_context,
    build_resources,
    job,
    materialize,
    op,
)
from entrepot.errors import ObjectLost, ObjectNotFound
from entrepot_dagster import EntrepotIOManager, TieredIOManager
from entrepot_io.connections import close_all, session_store
from entrepot_io.reference import Reference
from pydantic import Field

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


class Tables(ConfigurableIOManagerFactory[IOManager]):
    """A durable tier that looks up its own fields in contexts, as Dagster's IO managers of databases do."""

    folder: str
    schema_: str = Field(alias="schema", default="public")

    def create_io_manager(self, context: InitResourceContext) -> IOManager:
        return TablesOfContext()


class TablesOfContext(IOManager):
    def handle_output(self, context: OutputContext, obj: Any) -> None:
        np.save(self._file(context), obj)
        context.add_output_metadata({"schema": self._file(context).parent.name})

    def load_input(self, context: InputContext) -> Any:
        return np.load(self._file(context))

    def has_output(self, context: OutputContext) -> bool:
        return self._file(context).exists()

    def _file(self, context: InputContext | OutputContext) -> Path:
        config = context.resource_config
        assert config is not None
        folder = Path(str(config["folder"])) / str(config["schema"])
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{context.asset_key.to_user_string()}.npy"


@pytest.mark.parametrize("background", [False, True], ids=["at once", "in the background"])
def test_the_durable_tier_has_its_own_configuration(
    background: bool, instance: DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TABLES", str(tmp_path / "tables"))
    durable = Tables(folder=EnvVar("TABLES"), schema="sales")
    resources = {"io_manager": TieredIOManager(store=EntrepotIOManager(), durable=durable, background=background)}
    assert materialize([numbers], instance=instance, resources=resources).success
    assert (tmp_path / "tables/sales/numbers.npy").is_file()
    if not background:
        assert metadata_of(instance, "numbers")["schema"].value == "sales"
    lose(instance, "numbers")
    with build_resources(resources, instance=instance) as opened:
        manager = opened.io_manager
        assert not manager.store.has_output(build_output_context(asset_key=AssetKey("numbers")))
    result = materialize([numbers, total], selection=[total], instance=instance, resources=resources)
    assert result.output_for_node("total") == 1000 * 999 // 2


def test_an_optional_input_that_neither_has_is_none(instance: DagsterInstance, tmp_path: Path) -> None:
    result = materialize([numbers, perhaps], selection=[perhaps], instance=instance, resources=tiers(tmp_path))
    assert result.output_for_node("perhaps") is True


@asset
def plan() -> pl.LazyFrame:
    return pl.LazyFrame({"n": [1, 2, 3]}).map_batches(counted)


COLLECTED = [0]


def counted(frame: pl.DataFrame) -> pl.DataFrame:
    COLLECTED[0] += 1
    return frame


class Sunk(IOManager):
    """A durable tier that takes lazy frames."""

    def handle_output(self, context: OutputContext, obj: Any) -> None:
        assert isinstance(obj, pl.LazyFrame)
        assert obj.collect().height == 3

    def load_input(self, context: InputContext) -> Any:
        raise NotImplementedError


def test_a_lazy_frame_is_collected_once_for_both_tiers(instance: DagsterInstance) -> None:
    COLLECTED[0] = 0
    resources = {"io_manager": TieredIOManager(store=EntrepotIOManager(), durable=Sunk())}
    assert materialize([plan], instance=instance, resources=resources).success
    assert COLLECTED == [1]


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


# --- in the background


class Disk(IOManager):
    """A durable tier that may fail, and that may wait until the test lets it go on."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.go_on = threading.Event()
        self.go_on.set()
        self.error: Exception | None = None

    def handle_output(self, context: OutputContext, obj: Any) -> None:
        assert self.go_on.wait(60)
        if self.error is not None:
            raise self.error
        self.values[self._key(context)] = obj

    def load_input(self, context: InputContext) -> Any:
        return self.values[self._key(context)]

    def _key(self, context: OutputContext | InputContext) -> str:
        return context.asset_key.to_user_string() if context.has_asset_key else "/".join(context.get_identifier()[1:])


def in_background(disk: Disk) -> dict[str, Any]:
    return {"io_manager": TieredIOManager(store=EntrepotIOManager(), durable=disk, background=True)}


@asset
def slow() -> list[int]:
    return [VERSION[0]]


@asset
def reader(slow: list[int]) -> int:
    return slow[0]


VERSION = [0]


def observation_of(instance: DagsterInstance, name: str) -> AssetObservation:
    observation = instance.fetch_observations(AssetKey(name), limit=1).records[0].event_log_entry.asset_observation
    assert observation is not None
    return observation


def test_what_is_written_in_the_background_is_observed(instance: DagsterInstance) -> None:
    disk = Disk()
    assert materialize([slow], instance=instance, resources=in_background(disk)).success
    metadata, observation = metadata_of(instance, "slow"), observation_of(instance, "slow")
    assert metadata["entrepot/durable_tier"].value == "pending: written in the background"
    assert observation.metadata["entrepot/durable_tier"].value == "written"
    assert observation.metadata["entrepot/durable_write"] == metadata["entrepot/durable_write"]
    lose(instance, "slow")
    result = materialize([slow, reader], selection=[reader], instance=instance, resources=in_background(disk))
    assert result.output_for_node("reader") == VERSION[0]


def test_an_older_value_never_replaces_one_that_was_not_written(instance: DagsterInstance) -> None:
    disk = Disk()
    VERSION[0] = 1
    assert materialize([slow], instance=instance, resources=in_background(disk)).success
    disk.error = OSError("no space left")
    VERSION[0] = 2
    materialize([slow], instance=instance, resources=in_background(disk), raise_on_error=False)
    observation = observation_of(instance, "slow")
    assert observation.metadata["entrepot/durable_tier"].value == "failed: OSError: no space left"
    assert "no space left" in (observation.description or "")
    # The store has it, so it is read.
    both = [slow, reader]
    result = materialize(both, selection=[reader], instance=instance, resources=in_background(disk))
    assert result.output_for_node("reader") == 2
    lose(instance, "slow")
    with pytest.raises(ObjectLost, match=r"does not have its last value \(failed: OSError: no space left\)"):
        materialize(both, selection=[reader], instance=instance, resources=in_background(disk))
    # Written once more, at once: the durable tier has it.
    disk.error = None
    at_once = {"io_manager": TieredIOManager(store=EntrepotIOManager(), durable=disk)}
    assert materialize([slow], instance=instance, resources=at_once).success
    lose(instance, "slow")
    result = materialize(both, selection=[reader], instance=instance, resources=in_background(disk))
    assert result.output_for_node("reader") == 2


def test_a_failure_is_in_the_runs_log(instance: DagsterInstance) -> None:
    disk = Disk()
    disk.error = OSError("no space left")
    result = materialize([slow], instance=instance, resources=in_background(disk), raise_on_error=False)
    messages = [entry.user_message for entry in instance.all_logs(result.run_id)]
    assert any("slow is in the store, but was not written to the durable tier" in message for message in messages)


def test_a_process_that_was_killed_leaves_no_durable_copy(instance: DagsterInstance) -> None:
    disk = Disk()
    assert materialize([slow], instance=instance, resources=in_background(disk)).success
    metadata = {
        name: entry for name, entry in metadata_of(instance, "slow").items() if name != "entrepot/durable_write"
    }
    # What another process's materialization looks like if it was killed: its write has no observation.
    killed = AssetMaterialization(
        AssetKey("slow"), metadata={**metadata, "entrepot/durable_write": MetadataValue.text("f" * 32)}
    )
    instance.report_runless_asset_event(killed)
    lose(instance, "slow")
    with pytest.raises(ObjectLost, match="goes on in another process, or was killed with that process"):
        materialize([slow, reader], selection=[reader], instance=instance, resources=in_background(disk))


@asset
def lost_at_once(context: AssetExecutionContext, slow: list[int]) -> int:
    return slow[0]


class Losing(EntrepotIOManager):
    """A store that loses what it is asked for."""

    def load_existing(self, context: InputContext) -> Any:
        raise ObjectLost("lost by the test")


def test_a_reader_waits_for_what_is_still_written(instance: DagsterInstance) -> None:
    disk = Disk()
    disk.go_on.clear()
    resources = {"io_manager": TieredIOManager(store=Losing(), durable=disk, background=True)}
    # The reader is in the same process as the write, which goes on only while the reader waits for it.
    threading.Timer(0.2, disk.go_on.set).start()
    result = materialize([slow, lost_at_once], instance=instance, resources=resources)
    assert result.output_for_node("lost_at_once") == VERSION[0]


@op
def first() -> int:
    return 1


@op
def plus(first: int) -> int:
    return first + 1


def test_outputs_of_ops_are_written_at_once(instance: DagsterInstance) -> None:
    disk = Disk()

    @job(resource_defs=in_background(disk))
    def small() -> None:
        plus(first())

    disk.error = OSError("no space left")
    with pytest.raises(OSError, match="no space left"):
        small.execute_in_process(instance=instance)
    disk.error = None
    assert small.execute_in_process(instance=instance).output_for_node("plus") == 2
    assert disk.values["first/result"] == 1


def test_an_output_that_only_the_durable_tier_has_is_written_at_once(
    instance: DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    close_all()
    monkeypatch.setenv("ENTREPOT_ADDRESS", f"unix://{tmp_path}/nothing.sock")
    disk = Disk()
    disk.error = OSError("no space left")
    with pytest.raises(OSError, match="no space left"):
        materialize([slow], instance=instance, resources=in_background(disk))
