"""Spans of a Kedro run: from the process of one node to that of the next."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from otlp_receiver import receiving

PROGRAM = """
import numpy as np
from entrepot_kedro import EntrepotParallelRunner, catalog_config
from kedro.io import SharedMemoryDataCatalog
from kedro.pipeline import node, pipeline


def make():
    return np.arange(1000)


def double(values):
    return values * 2


def total(values, doubled):
    return int(values.sum() + doubled.sum())


job = pipeline(
    [
        node(make, None, "values", name="make"),
        node(double, "values", "doubled", name="double"),
        node(total, ["values", "doubled"], "total", name="total"),
    ]
)
catalog = SharedMemoryDataCatalog.from_config(
    catalog_config({"{name}": {"type": "entrepot_kedro.EntrepotDataset"}}), save_version="run-1"
)
assert EntrepotParallelRunner(max_workers=2).run(job, catalog)["total"].load() == 3 * 499_500
"""


@pytest.mark.slow
@pytest.mark.usefixtures("in_scope_tests")
def test_a_run_is_one_trace_over_the_processes_of_its_nodes(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(PROGRAM)
    with receiving() as receiver:
        environment = {"ENTREPOT_TRACES": "otlp", "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint}
        environment |= {"OTEL_SERVICE_NAME": "nightly", "KEDRO_MP_CONTEXT": "fork"}
        done = subprocess.run(
            [sys.executable, "job.py"], cwd=tmp_path, env=os.environ | environment, capture_output=True, timeout=100
        )
        assert done.returncode == 0, done.stderr.decode()
        (run,) = receiver.spans("entrepot run")
        puts = {span.attributes["entrepot.key"]: span for span in receiver.spans("entrepot put")}
        gets = receiver.spans("entrepot get")
    assert puts.keys() == {"dataset:values", "dataset:doubled", "dataset:total"}
    assert {span.parent for span in puts.values()} == {run.id}
    assert sorted(span.attributes["entrepot.key"] for span in gets) == [
        "dataset:doubled",
        "dataset:total",
        "dataset:values",
        "dataset:values",
    ]
    assert all(span.parent == puts[span.attributes["entrepot.key"]].id for span in gets)
    assert {span.trace for span in (*puts.values(), *gets)} == {run.trace}
    assert run.service == "nightly"
