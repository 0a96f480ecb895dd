"""Kedro's patterns of datasets over the store, by ``kedro run``: partitions, increments, caches, files, collections."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kedro_projects import kedro, write_project

pytestmark = [pytest.mark.slow, pytest.mark.e2e, pytest.mark.timeout(700)]

PROJECT_FILES = {
    "conf/base/catalog.yml": """
days:
  type: partitions.PartitionedDataset
  path: entrepot:///current/days
  dataset: pandas.CSVDataset
  filename_suffix: .csv
new_days:
  type: partitions.IncrementalDataset
  path: entrepot:///current/days
  dataset: pandas.CSVDataset
  filename_suffix: .csv
totals:
  type: CachedDataset
  dataset:
    type: entrepot_kedro.EntrepotDataset
    session: ""
summary:
  type: json.JSONDataset
  filepath: entrepot:///current/summary.json
"{space}.int_{rest}":
  type: entrepot_kedro.EntrepotDataset
"table@{form}":
  type: entrepot_kedro.EntrepotDataset
"{name}":
  type: entrepot_kedro.EntrepotDataset
""",
    "src/patterns/nodes.py": """
import json
from pathlib import Path

import entrepot
import pandas as pd


def make(first):
    return {f"day{number}": pd.DataFrame({"n": [number, number]}) for number in range(int(first), int(first) + 2)}


def first():
    return 1


def later():
    return 3


def total(days, made):
    return {name: int(load()["n"].sum()) for name, load in sorted(days.items())}


def collect(totals):
    with entrepot.connect(session="days") as store:
        builder = store.collection("totals")
        for index, name in enumerate(sorted(totals)):
            builder.put(totals[name], index=index)
        return builder.seal()


def table(totals):
    return pd.DataFrame({"total": list(totals.values())})


def summarize(totals, members, table):
    return {"totals": totals, "members": [member for member in members], "table": type(table).__module__}


def write(summary):
    Path("answer.json").write_text(json.dumps(summary))


def increment(new_days):
    Path("answer.json").write_text(json.dumps(sorted(new_days)))
""",
    "src/patterns/pipeline_registry.py": """
from kedro.pipeline import node, pipeline

from patterns import nodes


def register_pipelines():
    return {
        "__default__": pipeline(
            [
                node(nodes.first, None, "first", name="first"),
                node(nodes.make, "first", "days", name="make"),
                node(len, "days", "space.int_made", name="count"),
                node(nodes.total, ["days", "space.int_made"], "totals", name="total"),
                node(nodes.collect, "totals", "members", name="collect"),
                node(nodes.table, "totals", "table@pandas", name="table"),
                node(nodes.summarize, ["totals", "members", "table@polars"], "summary", name="summarize"),
                node(nodes.write, "summary", None, name="write"),
            ]
        ),
        "more": pipeline([node(nodes.later, None, "first"), node(nodes.make, "first", "days")]),
        "increments": pipeline([node(nodes.increment, "new_days", None, confirms="new_days")]),
    }
""",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    write_project(tmp_path, "patterns", PROJECT_FILES)
    return tmp_path


def run(project: Path, address: str, *arguments: str) -> Any:
    """Run ``kedro run``, and return what its last node has written."""
    answer = project / "answer.json"
    answer.unlink(missing_ok=True)
    process = kedro(project, "run", *arguments, variables={"ENTREPOT_ADDRESS": address, "ENTREPOT_SCOPE": "tests"})
    assert process.returncode == 0, process.stdout
    return json.loads(answer.read_text()) if answer.exists() else None


@pytest.mark.parametrize("runner", ["SequentialRunner", pytest.param("ParallelRunner", marks=pytest.mark.exhaustive)])
def test_patterns_of_datasets(project: Path, daemon: Any, runner: str) -> None:
    totals = {"day1": 2, "day2": 4}
    if runner == "ParallelRunner":  # Kedro's CachedDataset is for one process
        uncached = 'totals: {type: entrepot_kedro.EntrepotDataset, session: ""}'
        (project / "conf/local/catalog.yml").write_text(uncached)
    answer = run(project, daemon.address, "--runner", runner)
    assert answer.pop("table").startswith("polars")
    assert answer == {"totals": totals, "members": [2, 4]}
    assert run(project, daemon.address, "--pipeline", "increments") == ["day1", "day2"]
    run(project, daemon.address, "--pipeline", "more")
    assert run(project, daemon.address, "--pipeline", "increments") == ["day3", "day4"], "those not confirmed yet"
