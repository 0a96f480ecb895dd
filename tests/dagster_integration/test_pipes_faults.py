"""External processes of Dagster Pipes that are killed or stopped, in each phase, and stores that die or are full."""

# Annotations are not postponed here: Dagster looks at those of assets.

import os
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dagster import (
    AssetExecutionContext,
    AssetKey,
    Config,
    DagsterInstance,
    PipesSubprocessClient,
    RetryPolicy,
    asset,
    materialize,
)
from dagster._core.errors import DagsterPipesExecutionError
from entrepot_dagster import EntrepotIOManager, EntrepotResource
from entrepot_io.connections import close_all
from suspension import state_of

pytestmark = [pytest.mark.usefixtures("own_store"), pytest.mark.slow, pytest.mark.e2e, pytest.mark.timeout(300)]

PROGRAM = str(Path(__file__).with_name("faulty_pipes_program.py"))
PHASES = ("opened", "got", "stored", "reported")
ROWS = 100_000


class Strike(Config):
    """What the external process does; see faulty_pipes_program.py."""

    folder: str = ""
    what: str = "none"
    phase: str = "none"


@asset
def numbers() -> np.ndarray:
    return np.arange(ROWS)


def run_program(
    context: AssetExecutionContext, config: Strike, pipes: PipesSubprocessClient, entrepot: EntrepotResource
) -> Any:
    command = [sys.executable, PROGRAM, config.folder, config.what, config.phase]
    return pipes.run(context=context, command=command, extras=entrepot.pipes_extras(context)).get_materialize_result()


@asset(deps=[numbers], retry_policy=RetryPolicy(max_retries=1))
def doubled(
    context: AssetExecutionContext, config: Strike, pipes: PipesSubprocessClient, entrepot: EntrepotResource
) -> Any:
    return run_program(context, config, pipes, entrepot)


@asset(name="doubled", deps=[numbers])
def doubled_once(
    context: AssetExecutionContext, config: Strike, pipes: PipesSubprocessClient, entrepot: EntrepotResource
) -> Any:
    return run_program(context, config, pipes, entrepot)


@asset
def total(doubled: np.ndarray) -> int:
    return int(doubled.sum())


def run(instance: DagsterInstance, *assets: Any, strike: dict[str, str] | None = None, **options: Any) -> Any:
    resources = {
        "io_manager": EntrepotIOManager(),
        "entrepot": EntrepotResource(),
        "pipes": PipesSubprocessClient(),
    }
    config = {} if strike is None else {"ops": {"doubled": {"config": strike}}}
    return materialize(list(assets), instance=instance, resources=resources, run_config=config, **options)


ANSWER = ROWS * (ROWS - 1)
KILLED = [
    pytest.param(what, phase, marks=[] if phase == "stored" else [pytest.mark.exhaustive])
    for what in ("kill", "kill-daemon")
    for phase in PHASES
]


@pytest.mark.parametrize(("what", "phase"), KILLED)
def test_a_retry_completes(what: str, phase: str, instance: DagsterInstance, tmp_path: Path) -> None:
    strike = {"folder": str(tmp_path), "what": what, "phase": phase}
    result = run(instance, numbers, doubled, total, strike=strike)
    assert (tmp_path / "struck").exists()
    assert result.output_for_node("total") == ANSWER
    assert len(instance.fetch_materializations(AssetKey("doubled"), limit=5).records) == 1


@pytest.mark.parametrize(
    "phase", [pytest.param(each, marks=[] if each == "stored" else [pytest.mark.exhaustive]) for each in PHASES]
)
def test_what_a_killed_process_leaves_is_whole(phase: str, instance: DagsterInstance, tmp_path: Path) -> None:
    """As with files: the value before, or the one that it stored, which was never reported."""
    assert run(instance, numbers, doubled_once).success
    strike = {"folder": str(tmp_path), "what": "kill", "phase": phase}
    with pytest.raises(DagsterPipesExecutionError):
        run(instance, numbers, doubled_once, selection=[doubled_once], strike=strike)
    assert len(instance.fetch_materializations(AssetKey("doubled"), limit=5).records) == 1
    assert run(instance, numbers, doubled_once, total, selection=[total]).output_for_node("total") == ANSWER


@pytest.mark.parametrize(
    "phase", [pytest.param(each, marks=[] if each == "got" else [pytest.mark.exhaustive]) for each in PHASES]
)
def test_a_process_that_stood_still_goes_on(
    phase: str, instance: DagsterInstance, tmp_path: Path, wait_until: Callable[..., None]
) -> None:
    struck = tmp_path / "struck"

    def go_on() -> None:
        wait_until(struck.exists, "the strike", 120)
        pid = int(struck.read_text())
        try:
            wait_until(lambda: state_of(pid) == "T", "the stop")
        finally:
            os.kill(pid, signal.SIGCONT)

    with ThreadPoolExecutor(1) as executor:
        gone_on = executor.submit(go_on)
        strike = {"folder": str(tmp_path), "what": "stop", "phase": phase}
        result = run(instance, numbers, doubled_once, total, strike=strike)
        gone_on.result(120)
    assert result.output_for_node("total") == ANSWER


def test_what_does_not_fit_fails_the_process_and_leaves_the_asset(
    instance: DagsterInstance,
    new_daemon: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    close_all()
    monkeypatch.setenv("ENTREPOT_ADDRESS", new_daemon("64M").address)
    assert run(instance, numbers, doubled_once).success
    with pytest.raises(DagsterPipesExecutionError):
        run(instance, numbers, doubled_once, selection=[doubled_once], strike={"what": "enlarge"})
    assert "StoreFull" in capfd.readouterr().err
    assert run(instance, numbers, doubled_once, total, selection=[total]).output_for_node("total") == ANSWER
    close_all()
