"""Use that is wrong or unusual: settings, values, names, metadata, and several runs at once."""

# Annotations are not postponed here: Dagster looks at those of assets.
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from dagster import (
    AssetExecutionContext,
    AssetKey,
    DagsterInstance,
    FilesystemIOManager,
    StaticPartitionsDefinition,
    asset,
    materialize,
)
from entrepot.errors import InvalidArgument, UnsupportedType
from entrepot_dagster import EntrepotIOManager, EntrepotResource, TieredIOManager
from entrepot_dagster.values.output_facts import MAX_SCHEMA_COLUMNS

pytestmark = pytest.mark.usefixtures("own_store")

IO = {"io_manager": EntrepotIOManager()}
NAMES = ["a/b", "..", "%2F", "a@b", "x|y", "<script>alert(1)</script>", "ü \u202e 雪"]
HOSTILE = "<img src=x onerror=alert(1)>|\n"


@pytest.mark.parametrize(
    ("create", "message"),
    [
        (lambda: EntrepotIOManager(adress="unix:///x"), "EntrepotIOManager has no setting 'adress': did you mean 'ad"),
        (lambda: EntrepotIOManager(zzz=1), "EntrepotIOManager has no setting 'zzz': it has address, scope, copy, "),
        (lambda: EntrepotIOManager(preview_rows=-1), "preview_rows must be 0 or more, not -1"),
        (lambda: EntrepotIOManager(scope=""), "scope must not be empty: give this deployment a name, or leave"),
        (lambda: EntrepotResource(scope=""), "scope must not be empty: give this deployment a name, or leave"),
        (lambda: EntrepotIOManager(reserve_timeout="soon"), "reserve_timeout must be a duration such as 90s"),
        (lambda: EntrepotResource(sesion="x"), "EntrepotResource has no setting 'sesion': did you mean 'session'"),
        (lambda: TieredIOManager(store=EntrepotIOManager()), "needs two IO managers: durable= is missing"),
        (lambda: TieredIOManager(durable=FilesystemIOManager()), "needs two IO managers: store= is missing"),
        (lambda: TieredIOManager(store=EntrepotIOManager(), durable=7), "durable must be an IO manager, not 7"),
    ],
)
def test_wrong_settings_are_named_where_they_are_given(create: Callable[[], Any], message: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        create()
    assert message in str(caught.value)


@asset
def not_picklable() -> Any:
    return lambda: 1


def test_what_cannot_be_stored_is_an_error_and_leaves_no_record(instance: DagsterInstance) -> None:
    with pytest.raises(UnsupportedType, match="function"):
        materialize([not_picklable], instance=instance, resources=IO)
    assert instance.get_latest_materialization_event(AssetKey("not_picklable")) is None


@asset(partitions_def=StaticPartitionsDefinition(NAMES))
def named(context: AssetExecutionContext) -> str:
    return str(context.partition_key)


@asset
def of_names(named: dict[str, str]) -> dict[str, str]:
    return named


def test_partitions_with_names_that_mean_something_elsewhere(instance: DagsterInstance) -> None:
    for name in NAMES:
        assert materialize([named], partition_key=name, instance=instance, resources=IO).success
    result = materialize([named, of_names], selection=[of_names], instance=instance, resources=IO)
    assert result.output_for_node("of_names") == {name: name for name in NAMES}


@asset
def wide() -> pd.DataFrame:
    return pd.DataFrame(np.zeros((2, 20_000)), columns=[f"{HOSTILE}{number}" for number in range(20_000)])


@asset
def odd_cells() -> pd.DataFrame:
    return pd.DataFrame({"a": pd.Series([HOSTILE, "\ud800", "x" * 1_000_000], dtype=object)})


@asset
def read_odd_cells(odd_cells: pd.DataFrame) -> list[str]:
    return odd_cells["a"].to_list()


def test_metadata_of_a_table_are_bounded(instance: DagsterInstance) -> None:
    assert materialize([wide], instance=instance, resources=IO).success
    event = instance.get_latest_materialization_event(AssetKey("wide"))
    assert event is not None
    assert event.asset_materialization is not None
    metadata: dict[str, Any] = dict(event.asset_materialization.metadata)
    schema = metadata["dagster/column_schema"].schema
    assert len(schema.columns) == MAX_SCHEMA_COLUMNS
    assert schema.constraints.other == [f"the first {MAX_SCHEMA_COLUMNS} of 20000 columns"]
    assert len(metadata["entrepot/preview"].md_str) < 20_000
    assert "<img" not in metadata["entrepot/preview"].md_str


def test_cells_that_no_database_takes(instance: DagsterInstance) -> None:
    result = materialize([odd_cells, read_odd_cells], instance=instance, resources=IO)
    assert result.output_for_node("read_odd_cells") == [HOSTILE, "\ud800", "x" * 1_000_000]


@asset
def drawn() -> np.ndarray:
    return np.full(200_000, np.random.default_rng().integers(1 << 30))


@asset
def checked(drawn: np.ndarray) -> int:
    assert (drawn == drawn[0]).all(), "a value of two runs"
    return int(drawn[0])


RUNS = """
import sys
sys.path.insert(0, sys.argv[1])
from dagster import DagsterInstance, materialize
from test_hostile_use import IO, checked, drawn

with DagsterInstance.get() as instance:
    for _ in range(4):
        assert materialize([drawn, checked], instance=instance, resources=IO).success
"""


@pytest.mark.slow
def test_several_runs_of_the_same_asset_at_once(instance: DagsterInstance) -> None:
    """A reader gets the value of one run, whole; the last one that was written is there afterwards."""
    assert materialize([drawn, checked], instance=instance, resources=IO).success  # creates Dagster's tables
    command = [sys.executable, "-c", RUNS, os.path.dirname(__file__)]
    processes = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for _ in range(3)
    ]
    outputs = [process.communicate(timeout=240)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], "\n".join(text[-3000:] for text in outputs)
    assert materialize([drawn, checked], selection=[checked], instance=instance, resources=IO).success


@asset
def forking(drawn: np.ndarray) -> int:
    if (pid := os.fork()) == 0:
        os._exit(0 if (drawn == drawn[0]).all() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_step_that_forks(instance: DagsterInstance) -> None:
    result = materialize([drawn, forking], instance=instance, resources=IO)
    assert result.output_for_node("forking") == 0


WITHOUT_HOME = """
from dagster import asset, materialize
from entrepot_dagster import EntrepotIOManager

@asset
def number():
    return 7

assert materialize([number], resources={"io_manager": EntrepotIOManager()}).success
"""


def test_without_a_home_folder() -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ("HOME", "DAGSTER_HOME")}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_HOME], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-4000:]
