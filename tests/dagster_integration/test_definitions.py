"""Shapes of graphs, assets and partitions: what a definition can have several of, and what a run can leave out."""

# Annotations are not postponed here: Dagster looks at those of assets.

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl
import pytest
from dagster import (
    AssetCheckKey,
    AssetCheckResult,
    AssetExecutionContext,
    AssetIn,
    AssetKey,
    AssetOut,
    BackfillPolicy,
    DagsterInstance,
    DailyPartitionsDefinition,
    Definitions,
    DynamicPartitionsDefinition,
    Output,
    TimeWindowPartitionMapping,
    WeeklyPartitionsDefinition,
    asset,
    asset_check,
    graph_asset,
    materialize,
    multi_asset,
    op,
)
from entrepot.errors import ObjectNotFound
from entrepot_dagster import EntrepotIOManager

pytestmark = pytest.mark.usefixtures("own_store")

IO = {"io_manager": EntrepotIOManager()}


@multi_asset(outs={"left": AssetOut(is_required=False), "right": AssetOut(is_required=False)}, can_subset=True)
def halves(context: AssetExecutionContext) -> Iterator[Output[np.ndarray]]:
    for name, values in (("left", np.arange(500)), ("right", np.arange(500, 1000))):
        if name in context.op_execution_context.selected_output_names:
            yield Output(values, name)


@asset
def both(left: np.ndarray, right: np.ndarray) -> int:
    return int(left.sum() + right.sum())


def test_a_subset_of_several_outputs(instance: DagsterInstance) -> None:
    assert materialize([halves], selection=["left"], instance=instance, resources=IO).success
    with pytest.raises(ObjectNotFound, match="asset:right"):
        materialize([halves, both], selection=[both], instance=instance, resources=IO)
    assert materialize([halves], selection=["right"], instance=instance, resources=IO).success
    result = materialize([halves, both], selection=[both], instance=instance, resources=IO)
    assert result.output_for_node("both") == 1000 * 999 // 2


@op
def squares() -> np.ndarray:
    return np.arange(1000) ** 2


@op
def halved(values: np.ndarray) -> np.ndarray:
    return values // 2


@graph_asset
def from_a_graph() -> Any:
    return halved(squares())


@asset
def of_the_graph(from_a_graph: np.ndarray) -> int:
    return int(from_a_graph[-1])


def test_an_asset_that_is_a_graph(instance: DagsterInstance) -> None:
    assert materialize([from_a_graph], instance=instance, resources=IO).success
    result = materialize([from_a_graph, of_the_graph], selection=[of_the_graph], instance=instance, resources=IO)
    assert result.output_for_node("of_the_graph") == 999**2 // 2


@asset
def orders() -> pl.DataFrame:
    return pl.DataFrame({"price": [1.0, 2.0]})


@asset_check(asset=orders)
def prices_are_positive(orders: pl.LazyFrame) -> AssetCheckResult:
    return AssetCheckResult(passed=orders.filter(pl.col("price") <= 0).collect().is_empty())


def test_a_check_reads_the_asset_as_it_asks_for(instance: DagsterInstance) -> None:
    result = materialize([orders, prices_are_positive], instance=instance, resources=IO)
    (evaluation,) = result.get_asset_check_evaluations()
    assert evaluation.passed
    assert evaluation.asset_check_key == AssetCheckKey(AssetKey("orders"), "prices_are_positive")


CUSTOMERS = DynamicPartitionsDefinition(name="customers")


@asset(partitions_def=CUSTOMERS)
def of_customer(context: AssetExecutionContext) -> pl.DataFrame:
    return pl.DataFrame({"customer": [context.partition_key]})


@asset
def of_all(of_customer: pl.LazyFrame) -> list[str]:
    return of_customer.collect()["customer"].to_list()


def test_partitions_that_are_added_while_dagster_runs(instance: DagsterInstance) -> None:
    for names in (["zoe", "eve"], ["adam"]):
        instance.add_dynamic_partitions("customers", names)
        for name in names:
            assert materialize([of_customer], partition_key=name, instance=instance, resources=IO).success
    result = materialize([of_customer, of_all], selection=[of_all], instance=instance, resources=IO)
    assert result.output_for_node("of_all") == instance.get_dynamic_partitions("customers")


DAYS = DailyPartitionsDefinition("2026-01-04", end_date="2026-01-18")
WEEKS = WeeklyPartitionsDefinition("2026-01-04", end_date="2026-01-18")


@asset(partitions_def=DAYS, backfill_policy=BackfillPolicy.single_run())
def daily(context: AssetExecutionContext) -> dict[str, pl.DataFrame]:
    return {day: pl.DataFrame({"day": [day]}) for day in context.partition_keys}


@asset(partitions_def=WEEKS)
def weekly(daily: pl.DataFrame) -> list[str]:
    return daily["day"].to_list()


@asset(
    partitions_def=DAYS,
    ins={"daily": AssetIn(partition_mapping=TimeWindowPartitionMapping(start_offset=-2))},
    backfill_policy=BackfillPolicy.single_run(),
)
def of_three_days(context: AssetExecutionContext, daily: dict[str, pl.DataFrame]) -> dict[str, list[str]]:
    return dict.fromkeys(context.partition_keys, sorted(daily))


def test_windows_and_ranges_of_days(instance: DagsterInstance) -> None:
    whole = {
        "dagster/asset_partition_range_start": "2026-01-04",
        "dagster/asset_partition_range_end": "2026-01-17",
    }
    assert materialize([daily], tags=whole, instance=instance, resources=IO).success
    result = materialize(
        [daily, weekly], selection=[weekly], partition_key="2026-01-11", instance=instance, resources=IO
    )
    assert result.output_for_node("weekly") == [f"2026-01-{day}" for day in range(11, 18)]
    part = {
        "dagster/asset_partition_range_start": "2026-01-10",
        "dagster/asset_partition_range_end": "2026-01-12",
    }
    result = materialize([daily, of_three_days], selection=[of_three_days], tags=part, instance=instance, resources=IO)
    read = result.output_for_node("of_three_days")
    assert read["2026-01-10"] == [f"2026-01-{day:02}" for day in range(8, 13)]


@asset(partitions_def=DAYS, backfill_policy=BackfillPolicy.multi_run(2))
def counts(context: AssetExecutionContext, daily: dict[str, pl.DataFrame]) -> dict[str, int]:
    return {day: daily[day].height for day in context.partition_keys}


@asset(partitions_def=DAYS)
def by_name(context: AssetExecutionContext) -> dict[str, int]:
    return {context.partition_key: 7}


@asset(partitions_def=DAYS)
def of_one_day(daily: dict[str, pl.LazyFrame], by_name: dict[str, int]) -> list[Any]:
    return [list(daily), by_name]


def test_a_range_of_one_day_is_a_range(instance: DagsterInstance) -> None:
    """Of an odd number of days, a policy of two in a run leaves one, for the same function."""
    day = "2026-01-04"
    tags = {"dagster/asset_partition_range_start": day, "dagster/asset_partition_range_end": day}
    result = materialize([daily, counts], tags=tags, instance=instance, resources=IO)
    assert result.success
    defs = Definitions(assets=[daily, counts, by_name], resources=IO)
    assert defs.load_asset_value("counts", partition_key=day, instance=instance) == 1
    # A run of one partition stores what it returns, also a dictionary of that name.
    assert materialize([by_name], partition_key=day, instance=instance, resources=IO).success
    assert defs.load_asset_value("by_name", partition_key=day, instance=instance) == {day: 7}
    result = materialize(
        [daily, by_name, of_one_day], selection=[of_one_day], partition_key=day, instance=instance, resources=IO
    )
    assert result.output_for_node("of_one_day") == [[day], {day: 7}]


@asset(partitions_def=DAYS, metadata={"partition_expr": "day"})
def visits(context: AssetExecutionContext) -> pl.DataFrame:
    return pl.DataFrame({"day": [context.partition_key], "visitors": [7]})


@asset(partitions_def=DAYS, ins={"visits": AssetIn(metadata={"partition_expr": "day", "columns": ["visitors"]})})
def of_visits(visits: pl.DataFrame) -> Any:
    return visits.to_dict(as_series=False)


def test_a_partition_expression_may_stay(instance: DagsterInstance) -> None:
    """IO managers of databases want one; here each partition is an object of its own."""
    day = "2026-01-04"
    result = materialize([visits, of_visits], partition_key=day, instance=instance, resources=IO)
    assert result.output_for_node("of_visits") == {"visitors": [7]}


CELLS = [
    "import numpy as np\nfrom dagster import asset, materialize, Definitions",
    "from entrepot_dagster import EntrepotIOManager",
    "@asset\ndef numbers():\n    return np.arange(1000)\n\n@asset\ndef total(numbers):\n    return int(numbers.sum())",
    "io = {'io_manager': EntrepotIOManager(scope='notebook')}\nmaterialize([numbers], resources=io).success",
    "materialize([numbers, total], selection=[total], resources=io).output_for_node('total')",
    "numbers_here = Definitions(assets=[numbers], resources=io).load_asset_value('numbers')",
    "(int(numbers_here[-1]), numbers_here.flags.writeable)",
]
NOTEBOOK = """
import json, sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
results = [shell.run_cell(cell) for cell in json.loads(sys.argv[1])]
for result in results:
    result.raise_error()
print(json.dumps([result.result for result in results]))
"""


def test_the_cells_of_a_notebook() -> None:
    pytest.importorskip("IPython", reason="IPython is not installed")
    done = subprocess.run(
        [sys.executable, "-c", NOTEBOOK, json.dumps(CELLS)], capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr[-4000:]
    results = json.loads(done.stdout.splitlines()[-1])
    assert results == [None, None, None, True, 1000 * 999 // 2, None, [999, False]]
