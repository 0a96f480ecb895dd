"""The workflows example: the same answers with each transport, on loopback and on hosts with networks of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from examples.workflows import demo, hosts, present, s3_server
from examples.workflows.measure import Figures
from examples.workflows.pipeline import Answer, Part, Value
from examples.workflows.registry import WORKFLOWS
from examples.workflows.transports import open_transport, touch

ROOT = Path(__file__).resolve().parents[2]
SCALE = 0.02
HAS_S3 = s3_server.program().exists() or bool(os.environ.get(s3_server.BUILD_VARIABLE))


def answers_in_one_process(parts: int, scale: float) -> dict[str, dict[str, Any]]:
    """The answers of all workflows, without processes and transports."""
    answers: dict[str, dict[str, Any]] = {}
    for name, workflow in WORKFLOWS.items():
        values: dict[str, Value] = {}
        for stage in workflow.stages:
            made: dict[str, Value] = {}
            for index in range(1 if stage.single else parts):
                inputs = {key: values[key] for key in stage.reads(index, parts)}
                outputs = stage.compute(Part(index, parts, scale), inputs)
                if isinstance(outputs, Answer):
                    answers[name] = dict(outputs)
                else:
                    made |= outputs
            values |= made
    return answers


def run_demo(tmp_path: Path, *options: str) -> dict[str, Any]:
    """Run the demo and return its results."""
    out = tmp_path / "out"
    command = [sys.executable, "-m", "examples.workflows", "--rounds", "1", "--out", str(out), *options]
    process = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {"XDG_CACHE_HOME": str(s3_server.CACHE.parent), s3_server.BUILD_VARIABLE: "1"},
        capture_output=True,
        text=True,
        timeout=1000,
    )
    assert process.returncode == 0, process.stdout[-3000:] + process.stderr[-6000:]
    results: dict[str, Any] = json.loads((out / "results.json").read_text())
    assert results["same_answers"]
    return results


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_same_answers_on_loopback(tmp_path: Path) -> None:
    options = ["--transports", "entrepot,mapped", "--scale", str(SCALE)]
    results = run_demo(tmp_path, *options, "--hosts", "2", "--workers", "1", "--network", "loopback")
    expected = answers_in_one_process(results["workers"], SCALE)
    assert [(run["transport"], run["workflow"]) for run in results["runs"]] == [
        (transport, workflow) for transport in ("entrepot", "mapped") for workflow in WORKFLOWS
    ]
    for run in results["runs"]:
        assert demo.same_answer(run["answer"], expected[run["workflow"]])
        assert run["peak_bytes"] >= run["idle_bytes"] > 0
        assert run["bytes_read"] > 0
        assert run["bytes_written"] > 0


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.timeout(1200)
@pytest.mark.skipif(bool(hosts.refusal()), reason=hosts.refusal())
def test_the_same_answers_on_hosts_with_networks_of_their_own(tmp_path: Path) -> None:
    transports = ["entrepot", "s3" if HAS_S3 else "parquet"]
    options = ["--transports", ",".join(transports), "--scale", str(SCALE), "--network", "namespaces"]
    results = run_demo(tmp_path, *options, "--hosts", "4", "--workers", "1")
    assert results["namespaces"]
    expected = answers_in_one_process(results["workers"], SCALE)
    assert len(results["runs"]) == len(transports) * len(WORKFLOWS)
    for run in results["runs"]:
        assert demo.same_answer(run["answer"], expected[run["workflow"]]), (run["transport"], run["workflow"])


def test_what_is_read_was_written_before() -> None:
    for workflow in WORKFLOWS.values():
        assert all(stage.reads(0, 2) for stage in workflow.stages[1:])
    few, many = answers_in_one_process(2, SCALE), answers_in_one_process(3, SCALE)
    assert few.keys() == many.keys() == WORKFLOWS.keys()
    assert few["citation"]["papers"] * 3 == many["citation"]["papers"] * 2


@pytest.mark.parametrize("name", ["mapped", "parquet"])
def test_files(name: str, tmp_path: Path) -> None:
    transport = open_transport(name, {"folder": str(tmp_path), "run": "run"})
    values: dict[str, Value] = {
        "array": np.full((2, 10_000), 7),
        "table": pa.table({"number": np.arange(5000), "text": ["word"] * 5000}),
        "empty": np.zeros((0, 3)),
    }
    references = transport.write(values)
    values_read: list[Any] = list(transport.read(list(references.values())))
    array, table, empty = values_read
    assert np.array_equal(np.asarray(array), np.asarray(values["array"]))
    assert isinstance(table, pa.Table)
    assert table.to_pydict() == {"number": list(range(5000)), "text": ["word"] * 5000}
    assert empty.shape == (0, 3)
    assert touch(array) > 0
    assert touch(table) > 0
    assert touch(empty) == 0
    transport.remove(list(references.values()))
    assert list(tmp_path.iterdir()) == []


def _figures(transport: str, seconds: float, peak: int) -> Figures:
    return Figures("fraud", transport, seconds, seconds, 1.0, 10, 10, peak, 0, {})


def test_the_table_shows_medians_and_ratios() -> None:
    rows = [_figures("entrepot", seconds, 100_000_000) for seconds in (9.0, 1.0, 0.5)]
    rows += [_figures("mapped", seconds, 400_000_000) for seconds in (3.0, 2.0, 50.0)]
    table = present.text_table(rows)
    assert "3.0" in table
    assert "0.25" in table
    (sentence,) = present.summary(rows)
    assert "3.0 times as long as with Entrepot" in sentence
    assert "0.25 of its" in sentence


def test_answers_are_compared_but_for_the_last_digits() -> None:
    answer = {"count": 3, "sums": [1.0, 2.0]}
    assert demo.same_answer(answer, {"count": 3, "sums": [1.0 + 1e-12, 2.0]})
    assert not demo.same_answer(answer, {"count": 3, "sums": [1.0, 2.001]})
    assert not demo.same_answer(answer, {"count": 3, "sums": [1.0]})
    assert not demo.same_answer(answer, {"count": 3})


@pytest.mark.parametrize(
    "options", [["--transports", "pigeon"], ["--workflows", "weather"], ["--scale", "0"], ["--rounds", "0"]]
)
def test_wrong_options_are_refused(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        demo.parse(options)
    assert options[1] in capsys.readouterr().err
