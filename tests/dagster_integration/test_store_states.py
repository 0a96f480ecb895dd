"""A store that cannot be used, in each phase: of another version, away and without room."""

# Annotations are not postponed here: Dagster looks at those of ops.
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import entrepot
import numpy as np
import pytest
from daemon_of_another_version import DaemonOfAnotherVersion
from dagster import (
    AssetKey,
    DagsterEventType,
    DagsterInstance,
    ExecuteInProcessResult,
    InputContext,
    ReexecutionOptions,
    build_input_context,
    build_output_context,
    build_resources,
    build_run_status_sensor_context,
    execute_job,
    job,
    op,
    reconstructable,
)
from entrepot._core import PROTOCOL
from entrepot._store import objects
from entrepot.errors import EntrepotError, StoreFull, StoreUnavailable, VersionMismatch
from entrepot_dagster import EntrepotIOManager, StepFailure, session_sweeper, store_failure_hook, store_failure_sensor
from entrepot_dagster.values.keys import default_scope
from entrepot_io.connections import close_all, scope_store

ROWS = 200_000  # 1.6 MB
FILLER = 1 << 20  # of which no more fits into a full store
WAIT_SECONDS = 0.2  # for room, instead of 30
FILLER_WAIT_SECONDS = 3.0
ANOTHER_VERSION, AWAY, FULL = STATES = ("another version", "away", "full")
UNREADABLE = STATES[:2]
ERRORS: dict[str, type[EntrepotError]] = {
    ANOTHER_VERSION: VersionMismatch,
    AWAY: StoreUnavailable,
    FULL: StoreFull,
}
ADVICE = {
    ANOTHER_VERSION: "use one version of entrepot in all processes",
    AWAY: "run 'entrepot doctor' on the machine of the step",
    FULL: "give the store more memory or disk",
}


@op
def numbers() -> np.ndarray:
    if "BREAK_IN_NUMBERS" in os.environ:
        CURRENT[0].put_into(os.environ["BREAK_IN_NUMBERS"])
    return np.arange(ROWS)


@op
def total(doubled: np.ndarray) -> int:
    return int(doubled.sum())


@op
def doubled(numbers: np.ndarray) -> np.ndarray:
    if "BREAK_IN_DOUBLED" in os.environ:
        CURRENT[0].put_into(os.environ["BREAK_IN_DOUBLED"])
    return numbers * 2


class Breaking(EntrepotIOManager):
    """Puts the store into the state that BREAK_IN_LOAD names when the last step reads its input."""

    def load_input(self, context: InputContext) -> Any:
        if "BREAK_IN_LOAD" in os.environ and context.name == "doubled":
            CURRENT[0].put_into(os.environ["BREAK_IN_LOAD"])
        return super().load_input(context)


@job(resource_defs={"io_manager": Breaking()}, hooks={store_failure_hook})
def chain() -> None:
    total(doubled(numbers()))


class StoreInStates:
    """The test's store, and what makes it unusable."""

    def __init__(self, daemon: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._address = daemon.address
        self._folder = folder
        self._monkeypatch = monkeypatch
        self._proxy: DaemonOfAnotherVersion | None = None
        self._filler: entrepot.Store | None = None
        self.mend()

    def put_into(self, state: str) -> None:
        """From here on, every connection finds the store in this state."""
        close_all()
        if state == ANOTHER_VERSION:
            newer = (PROTOCOL[0] + 1, 0)
            self._proxy = DaemonOfAnotherVersion(f"{self._folder}/newer.sock", self._address, newer)
            self._monkeypatch.setenv("ENTREPOT_ADDRESS", self._proxy.address)
        elif state == AWAY:
            self._monkeypatch.setenv("ENTREPOT_ADDRESS", f"unix://{self._folder}/nobody.sock")
        else:
            self._filler = entrepot.connect(self._address, scope="filler")
            with self._monkeypatch.context() as patched, suppress(StoreFull):
                # A busy daemon refuses sooner what it has only not made room for yet.
                patched.setattr(objects, "PUT_WAIT_SECONDS", FILLER_WAIT_SECONDS)
                while True:
                    self._filler.put(bytes(FILLER))

    def mend(self) -> None:
        close_all()
        self._monkeypatch.setenv("ENTREPOT_ADDRESS", self._address)
        if self._proxy is not None:
            self._proxy.close()
            self._proxy = None
        if self._filler is not None:
            for item in self._filler.list():
                self._filler.delete(item.id)
            self._filler.close()
            self._filler = None


CURRENT: list[StoreInStates] = []  # of the test that runs


@pytest.fixture(autouse=True)
def store(
    new_daemon: Callable[..., Any], socket_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[StoreInStates]:
    monkeypatch.delenv("ENTREPOT_SCOPE", raising=False)
    monkeypatch.setattr(objects, "PUT_WAIT_SECONDS", WAIT_SECONDS)
    CURRENT[:] = [StoreInStates(new_daemon("64MiB"), socket_folder, monkeypatch)]
    yield CURRENT[0]
    CURRENT[0].mend()
    CURRENT.clear()
    close_all()


def run(instance: DagsterInstance) -> ExecuteInProcessResult:
    return chain.execute_in_process(instance=instance, raise_on_error=False)


def error_of(result: ExecuteInProcessResult, step: str) -> tuple[str, str]:
    """Class and message of the innermost error of the one step that failed."""
    (event,) = [event for event in result.all_events if event.is_step_failure]
    assert event.step_key == step
    error: Any = event.step_failure_data.error
    while error.cause is not None:
        error = error.cause
    return error.cls_name, error.message


def check_reexecution(instance: DagsterInstance, run_id: str) -> None:
    options = ReexecutionOptions.from_failure(run_id, instance)
    in_process: dict[str, Any] = {"execution": {"config": {"in_process": {}}}}
    job_definition = reconstructable(chain)
    with execute_job(job_definition, instance=instance, reexecution_options=options, run_config=in_process) as resumed:
        assert resumed.success, resumed.all_events
        assert resumed.output_for_node("total") == ROWS * (ROWS - 1)


def log_of(instance: DagsterInstance, run_id: str) -> str:
    return "\n".join(entry.user_message for entry in instance.all_logs(run_id))


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("step", ["numbers", "doubled"])
def test_an_output_fails_with_advice_and_a_reexecution_completes(
    state: str, step: str, store: StoreInStates, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``handle_output`` and the hook: of the first step, and of one whose input was read before."""
    monkeypatch.setenv(f"BREAK_IN_{step.upper()}", state)
    failed = run(instance)
    assert not failed.success
    name, message = error_of(failed, step)
    assert name == ERRORS[state].__name__, message
    assert f"entrepot: {step}: {name}: " in log_of(instance, failed.run_id)
    assert ADVICE[state] in log_of(instance, failed.run_id)
    monkeypatch.delenv(f"BREAK_IN_{step.upper()}")
    store.mend()
    check_reexecution(instance, failed.run_id)


@pytest.mark.parametrize("state", STATES)
def test_the_sensor_says_what_to_do(
    state: str, store: StoreInStates, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BREAK_IN_NUMBERS", state)
    failed = run(instance)
    reported: list[StepFailure] = []
    sensor = store_failure_sensor(lambda _, failures: reported.extend(failures))
    dagster_run = instance.get_run_by_id(failed.run_id)
    assert dagster_run is not None
    (entry,) = instance.all_logs(failed.run_id, of_type=DagsterEventType.RUN_FAILURE)
    context = build_run_status_sensor_context(
        sensor_name=sensor.name,
        dagster_event=entry.get_dagster_event(),
        dagster_instance=instance,
        dagster_run=dagster_run,
    )
    sensor(context.for_run_failure())  # while the store is still in that state, as the daemon evaluates it
    assert [(failure.step_key, failure.error) for failure in reported] == [("numbers", ERRORS[state].__name__)]
    assert ADVICE[state] in reported[0].advice
    events = [
        entry.get_dagster_event().message or "" for entry in instance.all_logs(failed.run_id) if entry.dagster_event
    ]
    assert f"entrepot: {reported[0]}" in events


def write_asset(instance: DagsterInstance) -> Any:
    context = build_output_context(
        asset_key=AssetKey("kept"), run_id="a-run", name="result", step_key="kept", instance=instance
    )
    with build_resources({"io_manager": EntrepotIOManager()}, instance=instance) as resources:
        resources.io_manager.handle_output(context, np.arange(ROWS))
    return context


@pytest.mark.parametrize("state", UNREADABLE)
def test_an_input_fails_with_advice_and_a_reexecution_completes(
    state: str, store: StoreInStates, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BREAK_IN_LOAD", state)
    failed = run(instance)
    assert not failed.success
    name, message = error_of(failed, "total")
    assert name == ERRORS[state].__name__, message
    assert ADVICE[state] in log_of(instance, failed.run_id)
    monkeypatch.delenv("BREAK_IN_LOAD")
    store.mend()
    check_reexecution(instance, failed.run_id)


@pytest.mark.parametrize("state", STATES)
def test_an_asset_is_read_or_is_an_error(state: str, store: StoreInStates, instance: DagsterInstance) -> None:
    """Outside of a run too; a full store is as good as any for a reader."""
    written = write_asset(instance)
    context = build_input_context(asset_key=AssetKey("kept"), upstream_output=written, instance=instance)
    store.put_into(state)
    with build_resources({"io_manager": EntrepotIOManager()}, instance=instance) as resources:
        if state in UNREADABLE:
            with pytest.raises(ERRORS[state]):
                resources.io_manager.load_input(context)
            store.mend()
        assert resources.io_manager.load_input(context)[-1] == ROWS - 1


@pytest.mark.parametrize("state", STATES)
def test_outputs_are_looked_up_and_deleted(state: str, store: StoreInStates, instance: DagsterInstance) -> None:
    """``has_output`` and ``delete`` never say "no" of a store that they cannot see."""
    context = write_asset(instance)
    store.put_into(state)
    with build_resources({"io_manager": EntrepotIOManager()}, instance=instance) as resources:
        manager = resources.io_manager
        if state in UNREADABLE:
            for look in (manager.has_output, manager.delete):
                with pytest.raises(ERRORS[state]):
                    look(context)
            store.mend()
        assert manager.has_output(context) is True
        assert manager.delete(context) is True
        assert manager.has_output(context) is False


@pytest.mark.parametrize("state", STATES)
def test_a_sweep_is_done_or_left_to_a_later_one(
    state: str,
    store: StoreInStates,
    instance: DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(session_sweeper, "SWEEP_SECONDS", 0.0)
    deleted = run(instance).run_id
    instance.delete_run(deleted)
    scope = default_scope(instance)

    def sweep() -> None:
        session_sweeper.sweep(instance, None, lambda: scope_store(None, scope))

    def is_kept() -> bool:
        return any(info.session == f"dagster/{deleted}" for info in scope_store(None, scope).sessions())

    store.put_into(state)
    with caplog.at_level(logging.INFO, logger=session_sweeper.__name__):
        sweep()
    if state in UNREADABLE:
        assert "cannot remove the values of deleted runs" in caplog.text
        store.mend()
        assert is_kept()
        sweep()
    assert not is_kept()
