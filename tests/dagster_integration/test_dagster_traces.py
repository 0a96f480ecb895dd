"""Spans of Dagster: from the process of one step to that of the next, and no further than the run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from dagster import DagsterInstance
from otlp_receiver import Receiver, receiving

PROGRAM = Path(__file__).with_name("traced_assets.py")
pytestmark = [pytest.mark.slow, pytest.mark.e2e, pytest.mark.usefixtures("own_store")]


def run(job: str, instance: DagsterInstance, receiver: Receiver) -> None:
    environment = {"ENTREPOT_TRACES": "otlp", "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint}
    done = subprocess.run(
        [sys.executable, str(PROGRAM), job], env=os.environ | environment, capture_output=True, text=True, timeout=110
    )
    assert done.returncode == 0, done.stderr


def test_assets_are_traced_by_run(instance: DagsterInstance) -> None:
    with receiving() as receiver:
        run("assets", instance, receiver)
        runs = receiver.spans("entrepot run")
        puts = [span for span in receiver.spans("entrepot put") if span.attributes["entrepot.key"].startswith("asset:")]
        gets = receiver.spans("entrepot get")
    assert len({span.trace for span in runs}) == 2
    assert [span.parent for span in puts] == [runs[0].id, runs[0].id, runs[1].id, runs[1].id]
    assert [span.parent for span in gets] == [puts[0].id, puts[2].id]
    assert [span.trace for span in gets] == [span.trace for span in runs]
    assert {span.attributes["entrepot.session"] for span in puts} == {""}, "assets are in the scope's own session"


def test_outputs_of_ops(instance: DagsterInstance) -> None:
    with receiving() as receiver:
        run("ops", instance, receiver)
        (run_span,) = receiver.spans("entrepot run")
        made, _ = receiver.spans("entrepot put")
        (get,) = receiver.spans("entrepot get")
    assert (made.parent, get.parent) == (run_span.id, made.id)
