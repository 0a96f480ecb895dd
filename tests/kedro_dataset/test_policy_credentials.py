"""A policy reads and writes the durable tier with the credentials that the catalog has for it, in every process."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import kedro_runs as runs
import numpy as np
import pytest
import s3fs
from entrepot import raw_objects
from entrepot.errors import InvalidArgument
from entrepot_io.connections import close_all, scope_store
from entrepot_io.keys import kedro_key
from entrepot_kedro import EntrepotDataset
from entrepot_kedro.policy import policy_registry
from entrepot_policy.runtime import PolicyRuntime
from entrepot_policy.schema.diagnostics import PolicyError
from kedro.io import DatasetError
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


def test_a_load_outside_of_a_run_with_different_credentials_is_refused(bucket: dict[str, Any]) -> None:
    """In a notebook, say."""
    EntrepotDataset(name="first", session="kept", credentials=bucket).save(1)
    second = EntrepotDataset(name="second", session="kept", credentials=bucket | {"key": "somebody"})
    with pytest.raises(DatasetError, match="'first' and 'second' have different credentials"):
        second.load()


CHECKPOINTS = (
    "targets: {deep: {url: 's3://values/checkpoints', credentials: checkpoints}}\n"
    "checkpoint: {target: deep, rules: [{match: '*'}]}\n"
    "failover: [{on: object_lost, do: [reload_checkpoint, fail]}]"
)


@pytest.fixture
def project_context(tmp_path: Path) -> Callable[[str], runs.Context]:
    """Writes a project's ``credentials.yml``, and returns a context with it."""

    def context_of(credentials: str) -> runs.Context:
        for name in ("base", "local"):
            (tmp_path / "conf" / name).mkdir(parents=True)
        (tmp_path / "conf/base/catalog.yml").write_text("{}\n")
        if credentials:
            (tmp_path / "conf/local/credentials.yml").write_text(credentials)
        return runs.Context(str(tmp_path / "conf"))

    return context_of


@pytest.fixture
def without_durable_tier(bucket: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Storage options of the bucket, for checkpoints only."""
    monkeypatch.delenv("ENTREPOT_DURABLE")
    return bucket


@pytest.mark.parametrize(
    ("new_runner", "start"),
    [
        (SequentialRunner, ""),
        (ThreadRunner, ""),
        (partial(ParallelRunner, max_workers=1), "fork"),
        pytest.param(partial(ParallelRunner, max_workers=1), "spawn", marks=pytest.mark.slow),
    ],
    ids=["sequential", "thread", "fork", "spawn"],
)
def test_a_target_uses_credentials_of_the_project(
    without_durable_tier: dict[str, Any],
    project_context: Callable[[str], runs.Context],
    tmp_path: Path,
    new_runner: Callable[[], AbstractRunner],
    start: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Checkpoints are written and read back with them, where no other process has any."""
    monkeypatch.setenv("KEDRO_MP_CONTEXT", start)
    set_policy(CHECKPOINTS, tmp_path, monkeypatch)
    context = project_context(json.dumps({"checkpoints": without_durable_tier}))
    outputs, _ = runs.run(job(), config(None), context=context, runner=new_runner())
    assert outputs["total"].load() == TOTAL, "the lost value was reloaded"
    assert s3fs.S3FileSystem(**without_durable_tier).find("values/checkpoints")


@pytest.mark.parametrize(
    ("credentials", "message"),
    [
        ("", r"entrepot.yaml:2:\d+: unknown credentials 'checkpoints' of a target; credentials.yml has nothing"),
        ("checkpoint: {secret: do-not-tell}", "'checkpoints' of a target; did you mean 'checkpoint'"),
        ("checkpoints: do-not-tell", "the credentials 'checkpoints' must be a mapping of storage options.* not str"),
    ],
    ids=["none", "misspelt", "text"],
)
def test_credentials_of_a_target_that_are_unusable(
    project_context: Callable[[str], runs.Context],
    tmp_path: Path,
    credentials: str,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_policy(CHECKPOINTS, tmp_path, monkeypatch)
    with pytest.raises(PolicyError, match=message) as caught:
        runs.run(job(), config(None), context=project_context(credentials))
    assert "do-not-tell" not in str(caught.value)


def test_a_process_without_the_project_refuses_credentials_of_a_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A runner called from Python, and every other orchestrator: never with what the driver finds by itself."""
    set_policy(CHECKPOINTS, tmp_path, monkeypatch)
    message = r"entrepot.yaml:2:\d+: the credentials 'checkpoints' are an entry of a Kedro project's credentials.yml"
    with pytest.raises(PolicyError, match=message):
        runs.run(job(), config(None))
    with pytest.raises(DatasetError, match=message):
        EntrepotDataset(name="x", session="kept").save(1)
    with pytest.raises(PolicyError, match=message):
        PolicyRuntime.of_environment(scope="tests")


def test_a_target_has_options_of_its_own(
    bucket: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a target lacks is reported before the first node, and says where it belongs."""
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ENDPOINT_URL", bucket["client_kwargs"]["endpoint_url"])
    set_policy("checkpoint: {target: 's3://values/checkpoints', rules: [{match: '*'}]}", tmp_path, monkeypatch)
    with pytest.raises(PolicyError, match=r"as the name of an entry of credentials\.yml: those of the"):
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
