"""A policy reads and writes the durable tier with the credentials that the catalog has for it, in every process."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import kedro_runs as runs
import numpy as np
import pytest
from entrepot import raw_objects
from entrepot.errors import InvalidArgument
from entrepot_io.connections import close_all, scope_store
from entrepot_io.keys import kedro_key
from entrepot_kedro.policy import policy_registry
from entrepot_policy.schema.diagnostics import PolicyError
from kedro.pipeline import Pipeline, node, pipeline
from kedro.runner import AbstractRunner, ParallelRunner, SequentialRunner, ThreadRunner

pytestmark = pytest.mark.usefixtures("in_scope_tests")

STORED = {"type": "entrepot_kedro.EntrepotDataset"}
FAIL = "FAIL_CONSUMER"


@pytest.fixture(autouse=True)
def _policy(in_scope_tests: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    set_policy("failover: [{on: object_lost, do: [reread_durable, fail]}]", tmp_path, monkeypatch)
    monkeypatch.setenv("ENTREPOT_EVENTS", str(tmp_path / "events"))
    monkeypatch.delenv(FAIL, raising=False)
    yield
    policy_registry.reset()


def set_policy(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = folder / "entrepot.yaml"
    file.write_text(f"version: 1\n{text}\n")
    monkeypatch.setenv("ENTREPOT_POLICY", str(file))
    policy_registry.reset()


def make() -> np.ndarray[Any, Any]:
    return np.arange(50_000)


def lose(values: np.ndarray[Any, Any]) -> int:
    """Lose the value that the next node reads, as a store does whose spill file is damaged."""
    del values
    store = scope_store(None, "tests", None)
    (session,) = {info.session for info in store.sessions() if info.session.startswith("kedro/")}
    run = store.session(session)
    raw_objects.discard(run, run.derive(kedro_key("numbers")))
    return 1


def add(values: np.ndarray[Any, Any], number: int) -> int:
    import os

    if os.environ.get(FAIL):
        raise RuntimeError("told to fail")
    return int(values.sum()) + number


def job() -> Pipeline:
    return pipeline(
        [
            node(make, None, "numbers", name="make"),
            node(lose, "numbers", "lost", name="lose"),
            node(add, ["numbers", "lost"], "total", name="add"),
        ]
    )


TOTAL = 50_000 * 49_999 // 2 + 1


def config(credentials: dict[str, Any] | None) -> dict[str, Any]:
    return {"{name}": STORED if credentials is None else STORED | {"credentials": credentials}}


@pytest.mark.parametrize(
    ("new_runner", "start"),  # a ParallelRunner starts a process: not where the tests are collected
    [
        (SequentialRunner, ""),
        (ThreadRunner, ""),
        (partial(ParallelRunner, max_workers=1), "fork"),
        pytest.param(partial(ParallelRunner, max_workers=1), "spawn", marks=pytest.mark.slow),
    ],
    ids=["sequential", "thread", "fork", "spawn"],
)
def test_a_lost_value_is_read_again_with_the_catalogs_credentials(
    bucket: dict[str, Any], new_runner: Callable[[], AbstractRunner], start: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEDRO_MP_CONTEXT", start)
    outputs, _ = runs.run(job(), config(bucket), runner=new_runner())
    assert outputs["total"].load() == TOTAL


def test_a_run_continues_with_what_only_the_durable_tier_has(
    bucket: dict[str, Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(FAIL, "1")
    with pytest.raises(RuntimeError, match="told to fail"):
        runs.run(job(), config(bucket))
    monkeypatch.delenv(FAIL)
    close_all()  # as in a new process
    with caplog.at_level(logging.INFO, "kedro"):
        outputs, _ = runs.run(job(), config(bucket), only_missing_outputs=True)
    assert outputs["total"].load() == TOTAL
    assert "Continuing in the session of an earlier run" in caplog.text
    assert "Running 1 out of 3 nodes" in caplog.text


def test_different_credentials_in_one_scope_are_refused_before_the_first_node(bucket: dict[str, Any]) -> None:
    other = bucket | {"key": "somebody", "secret": "do-not-tell"}
    mixed = config(bucket) | {"lost": STORED | {"credentials": other}}
    with pytest.raises(InvalidArgument, match="'lost' and 'numbers' have different credentials") as caught:
        runs.run(job(), mixed)
    assert "do-not-tell" not in str(caught.value)
    separate = mixed | {"lost": mixed["lost"] | {"scope": "elsewhere"}}
    outputs, _ = runs.run(job(), separate)
    assert outputs["total"].load() == TOTAL


def test_a_target_has_options_of_its_own(
    bucket: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a target lacks is reported before the first node, and says where it belongs."""
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ENDPOINT_URL", bucket["client_kwargs"]["endpoint_url"])
    set_policy("checkpoint: {target: 's3://values/checkpoints', rules: [{match: '*'}]}", tmp_path, monkeypatch)
    with pytest.raises(PolicyError, match="credentials of the orchestrator do not reach it"):
        runs.run(job(), config(bucket))
    monkeypatch.setenv("S3_KEY", bucket["key"])
    monkeypatch.setenv("S3_SECRET", bucket["secret"])
    set_policy(
        "targets: {deep: {url: 's3://values/checkpoints', options: {key: '${S3_KEY}', secret: '${S3_SECRET}'}}}\n"
        "checkpoint: {target: deep, rules: [{match: '*'}]}",
        tmp_path,
        monkeypatch,
    )
    outputs, _ = runs.run(job(), config(bucket))
    assert outputs["total"].load() == TOTAL
