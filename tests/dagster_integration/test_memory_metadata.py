"""What Dagster shows of memory: an output's own and shared bytes, its host, its copies, and what a load has copied."""

# Annotations are not postponed here: Dagster looks at those of assets.
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from dagster import (
    AssetExecutionContext,
    AssetKey,
    DagsterEventType,
    DagsterInstance,
    ExecuteInProcessResult,
    FilesystemIOManager,
    StaticPartitionsDefinition,
    asset,
    materialize,
)
from entrepot.errors import StoreUnavailable
from entrepot_dagster import EntrepotIOManager, TieredIOManager
from entrepot_dagster.values import output_facts
from entrepot_io.connections import close_all, session_store

pytestmark = pytest.mark.usefixtures("own_store")

IO = {"io_manager": EntrepotIOManager()}
ROWS = 100_000
PARTS = StaticPartitionsDefinition(["a", "b"])


@asset
def wide() -> pa.Table:
    return pa.table({"x": np.arange(ROWS), "y": np.arange(ROWS)})


@asset
def wider(wide: pa.Table) -> pa.Table:
    return wide.append_column("z", pa.array(np.arange(ROWS)))


@asset
def small() -> int:
    return 7


@asset
def as_polars(wide: pl.DataFrame) -> int:
    return wide.height


@asset
def as_lazy(wide: pl.LazyFrame) -> int:
    return wide.collect().height


@asset
def as_reader(wide: pa.RecordBatchReader) -> int:
    return sum(batch.num_rows for batch in wide)


@asset
def texts() -> pd.DataFrame:
    return pd.DataFrame({"text": pd.Series([str(number) for number in range(ROWS)], dtype=object)})


@asset
def of_texts(texts: pd.DataFrame) -> int:
    return len(texts)


@asset
def texts_lazily(texts: pl.LazyFrame) -> int:
    return texts.collect().height


@asset(partitions_def=PARTS)
def table_part(context: AssetExecutionContext) -> pl.DataFrame:
    return pl.DataFrame({"x": np.full(ROWS, ord(context.partition_key))})


@asset
def lazy_parts(table_part: pl.LazyFrame) -> int:
    return table_part.collect().height


@asset
def each_lazily(table_part: dict[str, pl.LazyFrame]) -> int:
    return sum(frame.collect().height for frame in table_part.values())


@asset
def read_parts(table_part: pa.RecordBatchReader) -> int:
    return sum(batch.num_rows for batch in table_part)


@asset(partitions_def=PARTS)
def part(context: AssetExecutionContext) -> np.ndarray:
    return np.full(ROWS, ord(context.partition_key))


@asset
def of_parts(part: dict[str, np.ndarray]) -> int:
    return int(sum(int(values.sum()) for values in part.values()))


def metadata_of(instance: DagsterInstance, name: str) -> dict[str, Any]:
    event = instance.get_latest_materialization_event(AssetKey(name))
    assert event is not None
    assert event.asset_materialization is not None
    return {label: entry.value for label, entry in event.asset_materialization.metadata.items()}


def loaded(result: ExecuteInProcessResult, step: str) -> dict[str, Any]:
    """Metadata of the only input that a step has loaded."""
    (event,) = [
        each for each in result.all_events if each.event_type is DagsterEventType.LOADED_INPUT and each.step_key == step
    ]
    data: Any = event.event_specific_data
    return {label: entry.value for label, entry in data.metadata.items()}


def test_bytes_of_its_own_and_of_older_objects(instance: DagsterInstance, daemon: Any) -> None:
    result = materialize([wide, wider, small], instance=instance, resources=IO)
    first, second, third = (metadata_of(instance, name) for name in ("wide", "wider", "small"))
    assert (first["entrepot/own_bytes"], first["entrepot/referenced_bytes"]) == (16 * ROWS, 0)
    assert (second["entrepot/own_bytes"], second["entrepot/referenced_bytes"]) == (8 * ROWS, 16 * ROWS)
    assert (third["entrepot/own_bytes"], third["entrepot/referenced_bytes"]) == (third["entrepot/bytes"], 0)
    assert first["entrepot/host"] == first["entrepot/reference"]["host"]
    assert "entrepot/checkpoint" not in first
    assert loaded(result, "wider") == {"entrepot/copied_bytes": 0}


def test_a_load_observes_nothing(instance: DagsterInstance) -> None:
    materialize([wide, wider], instance=instance, resources=IO)
    assert instance.fetch_observations(AssetKey("wide"), limit=1).records == []


def test_what_a_conversion_has_copied(instance: DagsterInstance) -> None:
    result = materialize([wide, as_polars, texts, of_texts], instance=instance, resources=IO)
    assert loaded(result, "as_polars") == {"entrepot/copied_bytes": 0}
    assert loaded(result, "of_texts") == {"entrepot/copied_bytes": 8 * ROWS}
    writable = {"io_manager": EntrepotIOManager(copy="always")}
    result = materialize([wide, wider], selection=[wider], instance=instance, resources=writable)
    assert loaded(result, "wider") == {"entrepot/copied_bytes": 16 * ROWS}


def test_several_partitions(instance: DagsterInstance) -> None:
    for key in ("a", "b"):
        materialize([part], partition_key=key, instance=instance, resources=IO)
    result = materialize([part, of_parts], selection=[of_parts], instance=instance, resources=IO)
    assert result.output_for_node("of_parts") == ROWS * (ord("a") + ord("b"))
    assert loaded(result, "of_parts") == {"entrepot/copied_bytes": 0}


def test_of_frames_that_are_read_later(instance: DagsterInstance) -> None:
    result = materialize([wide, as_lazy, as_reader, texts, texts_lazily], instance=instance, resources=IO)
    assert loaded(result, "as_lazy") == {"entrepot/copied_bytes": 0}
    assert loaded(result, "as_reader") == {"entrepot/copied_bytes": 0}
    copied = loaded(result, "texts_lazily")["entrepot/copied_bytes"]
    assert copied >= 8 * ROWS, "Python's strings become Polars' in memory of its own"
    readers = [lazy_parts, each_lazily, read_parts]
    for key in ("a", "b"):
        materialize([table_part], partition_key=key, instance=instance, resources=IO)
    result = materialize([table_part, *readers], selection=readers, instance=instance, resources=IO)
    for reader in readers:
        assert result.output_for_node(reader.op.name) == 2 * ROWS
        assert loaded(result, reader.op.name) == {"entrepot/copied_bytes": 0}


@pytest.mark.parametrize(("mode", "text"), [("through", "written to"), ("behind", "written in the background to")])
def test_a_durable_session_is_named(
    mode: str, text: str, instance: DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENTREPOT_DURABLE", str(tmp_path / "durable"))
    monkeypatch.setenv("ENTREPOT_DURABLE_MODE", mode)
    materialize([small], instance=instance, resources=IO)
    expected = f"{text} {tmp_path / 'durable'} (durable session)"
    assert metadata_of(instance, "small")["entrepot/checkpoint"] == expected


def test_a_durable_tier_that_was_written_at_once(instance: DagsterInstance, tmp_path: Path) -> None:
    files = FilesystemIOManager(base_dir=str(tmp_path / "files"))
    tiers = {"io_manager": TieredIOManager(store=EntrepotIOManager(), durable=files)}
    result = materialize([wide, wider], instance=instance, resources=tiers)
    metadata = metadata_of(instance, "wider")
    assert metadata["entrepot/durable_tier"] == "written"
    assert metadata["entrepot/referenced_bytes"] == 16 * ROWS
    assert loaded(result, "wider") == {"entrepot/copied_bytes": 0}


def test_a_store_that_ends_after_the_write_costs_only_these_metadata(
    instance: DagsterInstance, daemon: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The store is stopped between the write and the question, which is when the question is asked."""
    ask = session_store

    def stopped_first(*arguments: Any) -> Any:
        daemon.stop()
        close_all()
        return ask(*arguments)

    monkeypatch.setattr(output_facts, "session_store", stopped_first)
    with caplog.at_level(logging.INFO, logger="dagster.entrepot"):
        assert materialize([small], instance=instance, resources=IO, raise_on_error=False).success
    assert "its metadata have no sizes of its memory" in caplog.text
    metadata = metadata_of(instance, "small")
    assert "entrepot/reference" in metadata
    assert "entrepot/own_bytes" not in metadata
    with pytest.raises(StoreUnavailable):
        ask(None, "any", "", None)
