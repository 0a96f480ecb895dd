"""The policy through the IO manager: what is written, read and rerun, and what Dagster shows of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from dagster import (
    AssetKey,
    DagsterEventType,
    DagsterInstance,
    DagsterRunStatus,
    JobExecutionResult,
    RunsFilter,
    build_run_status_sensor_context,
    execute_job,
)
from dagster._core.definitions.reconstruct import ReconstructableJob, ReconstructableRepository
from dagster._core.execution.api import execute_run
from dagster._core.remote_origin import InProcessCodeLocationOrigin, RemoteRepositoryOrigin
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from entrepot import raw_objects
from entrepot.errors import InvalidArgument
from entrepot_dagster import EntrepotIOManager, policy_retries, policy_sensors, rerun_failed
from entrepot_dagster.__main__ import main
from entrepot_dagster.rerun import binding_of_job, find_recovery
from entrepot_dagster.values.keys import asset_of_key, default_scope, key_of_asset, run_of_session
from entrepot_io.connections import close_all, session_store
from entrepot_io.keys import dagster_asset_key
from entrepot_io.sessions import run_session
from entrepot_policy import PlanningError, PolicyError
from entrepot_policy.state.events import Event, log_file, read_events

JOBS = Path(__file__).with_name("policy_jobs.py")
ANSWER = 10_000 * 9_999


@pytest.fixture(autouse=True)
def _environment(daemon: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("ENTREPOT_ADDRESS", daemon.address)
    monkeypatch.setenv("ENTREPOT_EVENTS", str(tmp_path / "events"))
    monkeypatch.setenv("POLICY_JOBS_FOLDER", str(tmp_path / "steps"))
    (tmp_path / "steps").mkdir()
    yield
    close_all()


@pytest.fixture
def instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DagsterInstance]:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    (home / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    with DagsterInstance.get() as dagster_instance:
        yield dagster_instance


@pytest.fixture
def policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """``policy(text)``: put a policy into effect; ``{target}`` in it stands for a directory of the test."""

    def write(text: str) -> Path:
        file = tmp_path / "policy.yaml"
        file.write_text("version: 1\n" + text.replace("{target}", str(tmp_path / "target")))
        monkeypatch.setenv("ENTREPOT_POLICY", str(file))
        return file

    return write


RELOAD = """
checkpoint: {target: "{target}/{run}", rules: [{match: double}]}
failover: [{on: object_lost, do: [reload_checkpoint]}]
"""
RERUN = "failover: [{on: [object_lost, instance_lost], do: [rerun_upstream], max_attempts: 2}]\n"


def repository() -> ReconstructableRepository:
    """The jobs, copied to a file of the test: Dagster caches what it has loaded, including another test's policy."""
    file = Path(os.environ["POLICY_JOBS_FOLDER"]).with_name("policy_jobs.py")
    if not file.exists():
        shutil.copy(JOBS, file)
    return ReconstructableRepository.for_file(str(file), "definitions")


def reconstructable_job(name: str) -> ReconstructableJob:
    return repository().get_reconstructable_job(name)


def run_job(instance: DagsterInstance, name: str, day: str = "", asset: str = "") -> JobExecutionResult:
    """Run a job, optionally of one partition and only for one of its assets."""
    tags = {"dagster/partition": day} if day else None
    return execute_job(
        reconstructable_job(name), instance=instance, tags=tags, asset_selection=[AssetKey(asset)] if asset else None
    )


def step_counts(tmp_path: Path) -> dict[str, int]:
    return {file.name: int(file.read_text()) for file in (tmp_path / "steps").iterdir()}


def policy_events(instance: DagsterInstance, tmp_path: Path) -> list[Event]:
    return list(read_events(log_file(default_scope(instance), tmp_path / "events")))


def event_metadata(result: JobExecutionResult, kind: DagsterEventType, step: str) -> dict[str, Any]:
    """Metadata of a step's event."""
    event = next(item for item in result.all_events if item.event_type == kind and item.step_key == step)
    return {key: item.value for key, item in event.event_specific_data.metadata.items()}  # type: ignore[union-attr]


def log_messages(instance: DagsterInstance, run_id: str, step: str) -> str:
    return "\n".join(entry.user_message for entry in instance.all_logs(run_id) if entry.step_key == step)


def test_what_was_checkpointed_and_reloaded_is_shown(
    instance: DagsterInstance, policy: Callable[[str], Path], tmp_path: Path
) -> None:
    file = policy(RELOAD)
    result = run_job(instance, "losing")
    assert result.success
    assert step_counts(tmp_path) == {"numbers": 1, "double": 1, "lose": 1, "total": 1}
    written = event_metadata(result, DagsterEventType.HANDLED_OUTPUT, "double")
    assert written["entrepot/checkpoint"].startswith(f"written: {tmp_path}/target/{result.run_id}/")
    assert written["entrepot/rule"] == f"{file}:3"
    assert [input_fields[2] for input_fields in written["entrepot/inputs"]] == ["op:numbers/result"]
    read = event_metadata(result, DagsterEventType.LOADED_INPUT, "total")
    assert f"{tmp_path}/target" in read["entrepot/recovered"]
    assert read["entrepot/rule"] == f"{file}:4"
    assert "reloaded losing/double op:double/result" in log_messages(instance, result.run_id, "total")
    assert "checkpoint_written" in log_messages(instance, result.run_id, "double")
    assert "entrepot/checkpoint" not in event_metadata(result, DagsterEventType.HANDLED_OUTPUT, "numbers")


def test_outputs_of_a_finished_run_can_be_loaded(instance: DagsterInstance, policy: Callable[[str], Path]) -> None:
    policy(RELOAD)
    with execute_job(reconstructable_job("losing"), instance=instance) as result:
        assert result.success
        assert result.output_for_node("total") == ANSWER


def test_without_a_policy_nothing_of_it_is_shown(instance: DagsterInstance, tmp_path: Path) -> None:
    result = run_job(instance, "losing")
    assert not result.success
    assert not set(event_metadata(result, DagsterEventType.HANDLED_OUTPUT, "double")) & {
        "entrepot/inputs",
        "entrepot/rule",
    }
    assert not policy_events(instance, tmp_path)


@pytest.mark.slow
def test_exactly_the_lost_steps_are_executed_again(
    instance: DagsterInstance, policy: Callable[[str], Path], tmp_path: Path
) -> None:
    file = policy(RERUN)
    failed = run_job(instance, "losing")
    assert not failed.success
    event = next(candidate for candidate in failed.all_events if candidate.is_step_failure)
    data = event.step_failure_data.user_failure_data
    assert data is not None
    assert data.metadata["entrepot/rule"].value == f"{file}:2"
    (rerun,) = rerun_failed(instance, failed.run_id, asked=False)
    assert rerun.success
    assert step_counts(tmp_path) == {"numbers": 1, "double": 2, "lose": 1, "total": 1}
    rerun_record = instance.get_run_by_id(rerun.run_id)
    assert rerun_record is not None
    assert sorted(rerun_record.step_keys_to_execute or ()) == ["double", "total"]
    assert rerun_record.parent_run_id == failed.run_id


@pytest.mark.slow
def test_many_readers_of_a_lost_value_count_once(
    instance: DagsterInstance, policy: Callable[[str], Path], tmp_path: Path
) -> None:
    policy(RERUN)
    failed = run_job(instance, "many_readers")
    assert len([event for event in failed.all_events if event.is_step_failure]) == 4
    (rerun,) = rerun_failed(instance, failed.run_id, asked=False)
    assert rerun.success
    assert step_counts(tmp_path) == {"numbers": 1, "double": 2, "lose": 1, "total": 4}
    assert "gave_up" not in [event.kind for event in policy_events(instance, tmp_path)]


@pytest.mark.slow
def test_a_value_that_is_lost_again_and_again_ends_at_the_limit(
    instance: DagsterInstance, policy: Callable[[str], Path]
) -> None:
    policy(RERUN)
    failed = run_job(instance, "losing")
    instance.add_run_tags(failed.run_id, {"entrepot/reruns": '{"op:double/result": 2}'})
    with pytest.raises(PlanningError, match="op:double/result was recomputed 2 times and lost again"):
        rerun_failed(instance, failed.run_id)


@pytest.mark.slow
@pytest.mark.parametrize("split_too", [False, True])
def test_mapped_steps_are_executed_again_by_their_mapping_key(
    instance: DagsterInstance,
    policy: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    split_too: bool,
) -> None:
    policy(RERUN)
    if split_too:
        monkeypatch.setenv("POLICY_JOBS_SPLIT", "1")
    failed = run_job(instance, "mapped")
    assert not failed.success
    (rerun,) = rerun_failed(instance, failed.run_id, asked=False)
    assert rerun.success
    assert (tmp_path / "answer").read_text() == str(2 * 1_000 * 3 + 3)
    assert step_counts(tmp_path) == {
        "split": 2 if split_too else 1,
        "times_two[part_0]": 1,
        "times_two[part_1]": 2,
        "times_two[part_2]": 1,
        "lose_part": 1,
        "sum_parts": 1,
    }


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [("make_raw", "make_clean"), ("make_both", "make_both")])
def test_an_asset_of_another_run_is_recomputed_by_that_runs_step(
    instance: DagsterInstance, policy: Callable[[str], Path], tmp_path: Path, jobs: tuple[str, str]
) -> None:
    policy(RERUN)
    for day in ("monday", "tuesday"):
        assert run_job(instance, jobs[0], day, "raw").success
    lost_key = key_of_asset(instance, ["raw"], "monday")
    store = session_store(None, default_scope(instance), lost_key.session, None)
    raw_objects.discard(store, store.derive(lost_key.key))
    failed = run_job(instance, jobs[1], "monday", "clean")
    assert not failed.success
    results = rerun_failed(instance, failed.run_id, asked=False)
    assert [result.success for result in results] == [True, True]
    assert step_counts(tmp_path) == {"raw-monday": 2, "raw-tuesday": 1, "clean-monday": 1}


@pytest.mark.slow
def test_async_checkpoints_are_finalized(
    instance: DagsterInstance, policy: Callable[[str], Path], tmp_path: Path
) -> None:
    file = policy(
        'checkpoint: {target: "{target}/{run}", mode: async, rules: [{match: double}]}\n'
        "failover: [{on: object_lost, do: [fail]}]\n"
    )
    result = run_job(instance, "losing")
    assert not result.success
    written = event_metadata(result, DagsterEventType.HANDLED_OUTPUT, "double")
    assert written["entrepot/checkpoint"] == "pending: written in the background"
    assert written["entrepot/rule"] == f"{file}:2"
    sensors = {item.name: item for item in policy_sensors()}
    assert set(sensors) == {"entrepot_failover", "entrepot_settled", "entrepot_canceled"}
    evaluate_sensor(instance, sensors["entrepot_failover"], result.run_id)
    kinds = [item.kind for item in policy_events(instance, tmp_path)]
    assert "checkpoint_written" in kinds


def evaluate_sensor(instance: DagsterInstance, sensor: Any, run_id: str) -> Any:
    """Evaluate a sensor for a run."""
    run_record = instance.get_run_by_id(run_id)
    assert run_record is not None
    event = next(
        entry.get_dagster_event()
        for entry in instance.all_logs(run_id)
        if entry.is_dagster_event
        and entry.get_dagster_event().event_type in (DagsterEventType.RUN_FAILURE, DagsterEventType.RUN_SUCCESS)
    )
    context = build_run_status_sensor_context(
        sensor.name, event, instance, run_record, repository_def=repository().get_definition()
    )
    return sensor(context)


@pytest.mark.slow
def test_the_sensor_queues_one_re_execution(
    instance: DagsterInstance, policy: Callable[[str], Path], tmp_path: Path
) -> None:
    policy(RERUN)
    job = reconstructable_job("losing")
    python_origin = job.get_python_origin()
    target = LoadableTargetOrigin(python_file=str(tmp_path / "policy_jobs.py"), attribute="definitions")
    location = RemoteRepositoryOrigin(InProcessCodeLocationOrigin(target), "__repository__")
    failed_run = instance.create_run_for_job(
        job.get_definition(), remote_job_origin=location.get_job_origin("losing"), job_code_origin=python_origin
    )
    assert not execute_run(job, failed_run, instance).success
    sensor = next(candidate for candidate in policy_sensors() if candidate.name == "entrepot_failover")
    for _ in range(2):  # an evaluation may be repeated
        evaluate_sensor(instance, sensor, failed_run.run_id)
    (queued,) = instance.get_runs(RunsFilter(statuses=[DagsterRunStatus.QUEUED]))
    assert sorted(queued.step_keys_to_execute or ()) == ["double", "total"]
    assert queued.parent_run_id == failed_run.run_id
    assert queued.tags["entrepot/reruns"] == '{"op:double/result": 1}'


@pytest.mark.slow
def test_a_run_that_no_queue_can_launch_is_left_to_the_command(
    instance: DagsterInstance, policy: Callable[[str], Path]
) -> None:
    policy(RERUN)
    failed = run_job(instance, "losing")
    sensor = next(item for item in policy_sensors() if item.name == "entrepot_failover")
    with pytest.raises(InvalidArgument, match=f"python -m entrepot_dagster rerun {failed.run_id}"):
        evaluate_sensor(instance, sensor, failed.run_id)
    assert main(["rerun", "--last"]) == 0
    assert [item.is_success for item in instance.get_runs()] == [True, False]
    assert main(["finalize", failed.run_id]) == 0
    assert main(["settle", failed.run_id]) == 0  # its former name
    assert main(["rerun", "no-such-run"]) == 1


@pytest.mark.slow
def test_the_sensor_leaves_other_failures_alone(instance: DagsterInstance, policy: Callable[[str], Path]) -> None:
    policy("failover: [{on: task_failed, do: [{fail: {reason: ask the data team}}]}]\n")
    failed = run_job(instance, "flaky")
    sensor = next(candidate for candidate in policy_sensors() if candidate.name == "entrepot_failover")
    evaluate_sensor(instance, sensor, failed.run_id)
    assert not instance.get_runs(RunsFilter(statuses=[DagsterRunStatus.QUEUED]))
    job = reconstructable_job("flaky").get_definition()
    run_record = instance.get_run_by_id(failed.run_id)
    assert run_record is not None
    recovery = find_recovery(instance, run_record, job, binding_of_job(job, instance, run_record), requested=True)
    assert recovery is not None
    assert recovery.steps == ("fails_twice",)


def test_the_policys_retries(instance: DagsterInstance, policy: Callable[[str], Path], tmp_path: Path) -> None:
    policy("failover: [{on: task_failed, do: [{retry: {attempts: 2, delay: 10ms}}]}]\n")
    assert run_job(instance, "flaky").success
    assert step_counts(tmp_path) == {"fails_twice": 3}


def test_the_hook_logs_why_retries_end(
    instance: DagsterInstance, policy: Callable[[str], Path], tmp_path: Path
) -> None:
    file = policy("failover: [{on: task_failed, do: [{fail: {reason: ask the data team}}]}]\n")
    failed = run_job(instance, "flaky")
    assert not failed.success
    assert step_counts(tmp_path) == {"fails_twice": 1}
    assert f"failed for good: ask the data team (policy {file}:2)" in log_messages(
        instance, failed.run_id, "fails_twice"
    )
    assert [event.kind for event in policy_events(instance, tmp_path)] == ["task_failed", "gave_up"]


def test_retries_follow_the_rule_of_the_task(policy: Callable[[str], Path]) -> None:
    policy(
        "failover:\n"
        "  - {on: task_failed, match: 'train_*', do: [{retry: {attempts: 5, delay: 1s, factor: 3, max_delay: 5s}}]}\n"
        "  - {on: task_failed, match: {tag: fragile}, do: [fail]}\n"
        "  - {on: task_failed, do: [{retry: {attempts: 1, delay: 0.5s}}]}\n"
    )
    train, other = policy_retries("train_model"), policy_retries()
    assert train is not None
    assert other is not None
    assert train.max_retries == 5
    assert [train.calculate_delay(number) for number in (1, 2, 3, 4)] == [1.0, 3.0, 5.0, 5.0]
    assert (other.max_retries, other.calculate_delay(1)) == (1, 0.5)
    assert policy_retries("load", tags=["fragile"]) is None


def test_there_are_no_retries_and_sensors_without_a_policy() -> None:
    assert policy_retries() is None
    assert policy_sensors() == []


@pytest.mark.parametrize("make", [EntrepotIOManager, policy_retries, policy_sensors])
def test_an_invalid_policy_fails_where_definitions_are_loaded(
    policy: Callable[[str], Path], make: Callable[..., Any]
) -> None:
    file = policy("failover: [{on: object_lost, do: [retrie]}]\n")
    with pytest.raises(PolicyError, match=rf"{file}:2:\d+: .*retrie"):
        make()
    with pytest.raises(PolicyError, match=rf"{file}:2:\d+: .*retrie"):
        make(policy=str(file))


def test_the_io_managers_setting_overrides_the_environment(policy: Callable[[str], Path]) -> None:
    policy("failover: [{on: object_lost, do: [retrie]}]\n")
    assert EntrepotIOManager(policy="off").policy_binding() is None


def test_an_unwritable_target_fails_before_the_first_step(
    instance: DagsterInstance, policy: Callable[[str], Path], tmp_path: Path
) -> None:
    (tmp_path / "target").write_text("a file")
    file = policy(RELOAD)
    failed = run_job(instance, "losing")
    assert not failed.success
    assert step_counts(tmp_path) == {}
    errors = "\n".join(
        str(getattr(entry.get_dagster_event().event_specific_data, "error", ""))
        for entry in instance.all_logs(failed.run_id)
        if entry.is_dagster_event
    )
    assert f"{file}:3:" in errors
    assert "checkpoints cannot be written to this target" in errors


@pytest.mark.slow
def test_without_a_policy_no_policy_module_is_imported() -> None:
    program = "import sys, entrepot_dagster; print([name for name in sys.modules if 'entrepot_policy' in name])"
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert process.stdout.strip() == "[]"


def test_keys_are_parsed_as_they_were_formatted() -> None:
    for path, partition in ((["a", "b/c"], None), (["a@b"], "2026-01-01"), (["100%", "x"], "p/q@r")):
        assert asset_of_key(dagster_asset_key(path, partition)) == (path, partition)
    assert asset_of_key("op:a/b") is None
    assert run_of_session(run_session("dagster", "run-1")) == "run-1"
    assert run_of_session("") is None


@pytest.mark.slow
def test_a_lost_store_is_recovered_from_dagsters_event_log(
    instance: DagsterInstance, policy: Callable[[str], Path], daemon: Any, tmp_path: Path
) -> None:
    """Keeper, daemon and lineage are gone; rules still match assets, and no more than necessary is rerun."""
    policy(
        "failover:\n"
        "  - {on: instance_lost, match: {asset: raw}, do: [rerun_upstream]}\n"
        "  - {on: instance_lost, do: [{fail: {reason: no}}]}\n"
    )
    assert run_job(instance, "make_raw", "monday").success
    daemon.stop()
    close_all()
    daemon.start()
    failed = run_job(instance, "make_clean", "monday")
    assert not failed.success
    assert [result.success for result in rerun_failed(instance, failed.run_id, asked=False)] == [True, True]
    assert step_counts(tmp_path) == {"raw-monday": 2, "clean-monday": 1}
