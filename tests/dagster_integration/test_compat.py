"""Dagster's private names exist, and each function of the plugin's compat package does what it promises."""

# No `from __future__ import annotations`: Dagster looks at the types of the ops' parameters.
import sys
from importlib import metadata
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from dagster import (
    DagsterEventType,
    DagsterInstance,
    DagsterRunStatus,
    DynamicOut,
    DynamicOutput,
    InitExecutorContext,
    InputContext,
    IOManager,
    MetadataValue,
    OpExecutionContext,
    OutputContext,
    RetryPolicy,
    build_input_context,
    build_output_context,
    in_process_executor,
    job,
    mem_io_manager,
    op,
    reconstructable,
)
from dagster_k8s import k8s_job_executor
from entrepot.errors import InvalidArgument
from entrepot_dagster.compat import events, reexecution, step_handlers, steps
from entrepot_dagster.compat.private_names import PRIVATE_NAMES
from entrepot_dagster.compat.steps import StepOutputHandle
from entrepot_io.private_names import PrivateName

sys.path.insert(0, str(Path(__file__).parents[1] / "repo"))

from tool_modules import load_tool

KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: none, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: nobody, user: {}}]
contexts: [{name: none, context: {cluster: none, user: nobody}}]
current-context: none
"""


@op
def load() -> int:
    return 1


@op(config_schema={"fail": bool})
def train(context: OpExecutionContext, loaded: int) -> int:
    if context.op_config["fail"]:
        raise ValueError("as configured")
    return loaded + 1


@op
def report(trained: int) -> int:
    return trained + 1


@job(resource_defs={"io_manager": mem_io_manager}, executor_def=in_process_executor, tags={"team": "data"})
def training() -> None:
    report(train(load()))


@job(resource_defs={"io_manager": mem_io_manager}, executor_def=in_process_executor)
def single() -> None:
    load()


@op(out=DynamicOut(int))
def parts() -> Any:
    yield DynamicOutput(1, mapping_key="one")
    yield DynamicOutput(2, mapping_key="two")


@op
def double(part: int) -> int:
    return part * 2


@op
def total(parts: list[int]) -> int:
    return sum(parts)


@job(resource_defs={"io_manager": mem_io_manager}, executor_def=in_process_executor)
def mapped() -> None:
    total(parts().map(double).collect())


def config(*, fail: bool) -> dict[str, Any]:
    return {"ops": {"train": {"config": {"fail": fail}}}}


@pytest.fixture
def instance() -> Any:
    """An instance of its own."""
    with DagsterInstance.ephemeral() as instance:
        yield instance


@pytest.fixture
def failed_run(instance: DagsterInstance) -> Any:
    """A run of ``training`` whose second step failed."""
    result = training.execute_in_process(run_config=config(fail=True), instance=instance, raise_on_error=False)
    return instance.get_run_by_id(result.run_id)


# --- the names


@pytest.fixture
def checker(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """tools/check_private_names.py as a module."""
    return load_tool("check_private_names", monkeypatch)


def test_the_installed_dagster_has_the_private_names(checker: ModuleType) -> None:
    assert checker.missing_names(PRIVATE_NAMES, metadata.version("dagster")) == []


@pytest.mark.parametrize(
    ("module", "attribute"),
    [
        ("dagster._core.invented", ""),
        ("dagster._core.storage.tags", "INVENTED_TAG"),
        ("dagster._core.execution.plan.state", "KnownExecutionState.invented"),
    ],
)
def test_an_invented_name_is_reported(checker: ModuleType, module: str, attribute: str) -> None:
    invented = PrivateName(module, attribute, "test")
    (line,) = checker.missing_names([*PRIVATE_NAMES, invented], metadata.version("dagster"))
    assert line.startswith(f"{invented.text}: ")


# --- library


def test_the_library_is_registered() -> None:
    import entrepot_dagster
    from dagster_shared.libraries import DagsterLibraryRegistry

    assert DagsterLibraryRegistry.get()["entrepot-dagster"] == entrepot_dagster.__version__


# --- steps and events


class ProbeIOManager(IOManager):
    """Keeps values in memory, and what the compat package finds out about the contexts that it is given."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, ...], Any] = {}
        self.calls: list[tuple[str, bool, str | None]] = []
        self.events: list[str | None] = []

    def _record(self, kind: str, context: InputContext | OutputContext) -> None:
        step = steps.executing_step(context)
        self.calls.append((kind, steps.has_step(context), None if step is None else step.step.key))
        if step is not None:
            event = events.engine_event(step, "placed", {"where": MetadataValue.text("here")})
            self.events.append(event.message)
            assert event.engine_event_data.metadata["where"] == MetadataValue.text("here")

    def handle_output(self, context: OutputContext, obj: Any) -> None:
        self._record("output", context)
        self.values[tuple(context.get_identifier())] = obj

    def load_input(self, context: InputContext) -> Any:
        self._record("input", context)
        return self.values[tuple(context.get_identifier())]


def test_a_step_is_told_from_a_context_without_one(instance: DagsterInstance) -> None:
    probe = ProbeIOManager()
    result = training.execute_in_process(
        run_config=config(fail=False), instance=instance, resources={"io_manager": probe}
    )
    assert ("output", True, "load") in probe.calls
    assert ("input", True, "report") in probe.calls
    assert set(probe.events) == {"placed"}
    probe.calls.clear()
    assert result.output_for_node("report") == 3  # from the result of a run that is over
    assert {step for _, _, step in probe.calls} <= {None}
    for context in (build_input_context(), build_output_context()):
        assert not steps.has_step(context)
        assert steps.executing_step(context) is None


def test_whether_a_step_is_retried_is_known(instance: DagsterInstance) -> None:
    by_step: dict[str, bool] = {}

    class RetriesIOManager(ProbeIOManager):
        def load_input(self, context: InputContext) -> Any:
            by_step[context.step_context.step.key] = steps.has_retries(context)
            return super().load_input(context)

    @op(retry_policy=RetryPolicy(max_retries=1))
    def retried(loaded: int) -> int:
        return loaded

    @op
    def tried_once(loaded: int) -> int:
        return loaded

    @job(executor_def=in_process_executor)
    def some() -> None:
        tried_once(retried(load()))

    assert some.execute_in_process(instance=instance, resources={"io_manager": RetriesIOManager()}).success
    assert by_step == {"retried": True, "tried_once": False}
    assert not steps.has_retries(build_input_context())


def test_the_outputs_that_an_input_reads_are_found(instance: DagsterInstance) -> None:
    run = instance.create_run_for_job(mapped)
    plan = reexecution.reexecution_plan(instance, run, mapped, ["parts"])
    read = {
        step.key: [handle.step_key for step_input in step.step_inputs for handle in steps.upstream_handles(step_input)]
        for step in plan.steps
    }
    assert read == {"parts": [], "double[?]": ["parts"], "total": ["double[?]"]}


def test_the_partition_of_a_run_is_found(instance: DagsterInstance) -> None:
    assert steps.partition_of(instance.create_run_for_job(single, tags={"dagster/partition": "monday"})) == "monday"
    assert steps.partition_of(instance.create_run_for_job(single)) is None


def test_a_line_is_written_to_a_runs_log(instance: DagsterInstance, failed_run: Any) -> None:
    events.report_engine_event(instance, "a remark", failed_run)
    entries = instance.all_logs(failed_run.run_id, of_type=DagsterEventType.ENGINE_EVENT)
    assert "a remark" in [entry.get_dagster_event().message for entry in entries]


# --- reexecution


def test_the_unfinished_steps_of_a_run_are_found(instance: DagsterInstance, failed_run: Any) -> None:
    assert set(reexecution.unfinished_steps(instance, failed_run)) == {"train", "report"}


def test_a_reexecution_names_its_parent_and_root(instance: DagsterInstance, failed_run: Any) -> None:
    tags = reexecution.reexecution_tags(failed_run)
    assert tags["team"] == "data"
    assert tags[reexecution.PARENT_RUN_ID_TAG] == failed_run.run_id
    again = training.execute_in_process(
        run_config=config(fail=True), instance=instance, tags=tags, raise_on_error=False
    )
    child = instance.get_run_by_id(again.run_id)
    assert child is not None
    next_tags = reexecution.reexecution_tags(child)
    assert next_tags[reexecution.PARENT_RUN_ID_TAG] == child.run_id
    assert next_tags["dagster/root_run_id"] == (child.root_run_id or child.run_id)


def test_a_plan_executes_exactly_its_steps(instance: DagsterInstance, failed_run: Any) -> None:
    plan = reexecution.reexecution_plan(instance, failed_run, training, ["train", "report"])
    assert {step.key for step in reexecution.steps_to_execute(plan)} == {"train", "report"}
    assert {step.key for step in plan.steps} == {"load", "train", "report"}


def test_the_run_that_wrote_an_output_is_found(instance: DagsterInstance, failed_run: Any) -> None:
    past = reexecution.past_runs(instance, failed_run)
    assert [state.run_id for state in past] == [failed_run.run_id]
    assert reexecution.writing_run_id(past, StepOutputHandle("load", "result")) == failed_run.run_id
    assert reexecution.writing_run_id(past, StepOutputHandle("train", "result")) is None
    assert list(reexecution.known_past_runs(None)) == []


def test_a_mapped_step_is_known_by_its_key_before_expansion() -> None:
    assert reexecution.unmapped_step_key("double[one]") == "double[?]"
    assert reexecution.unmapped_step_key("train") == "train"


def test_a_runs_job_is_reconstructed_and_executed(instance: DagsterInstance, failed_run: Any) -> None:
    assert reexecution.recorded_job(failed_run) is None  # execute_in_process records no origin
    origin = reconstructable(single).get_python_origin()
    run = instance.create_run_for_job(single, job_code_origin=origin)
    recorded = reexecution.recorded_job(run)
    assert recorded is not None
    assert recorded.get_definition().name == "single"
    assert reexecution.execute_created_run(recorded, run, instance).success
    finished = instance.get_run_by_id(run.run_id)
    assert finished is not None
    assert finished.status is DagsterRunStatus.SUCCESS


# --- step_handlers


@pytest.fixture
def executor(instance: DagsterInstance, tmp_path: Path) -> Any:
    """The executor that dagster-k8s creates, and its handler."""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(KUBECONFIG)
    config: dict[str, Any] = {
        "load_incluster_config": False,
        "kubeconfig_file": str(kubeconfig),
        "retries": {"enabled": {}},
    }
    context = InitExecutorContext(
        job=reconstructable(single), executor_def=k8s_job_executor, executor_config=config, instance=instance
    )
    return step_handlers.create_k8s_executor(context)


def test_the_client_of_a_handler_is_replaced_in_a_copy_only(executor: Any) -> None:
    _, handler = executor
    client = step_handlers.client_of(handler)
    other = SimpleNamespace(create_namespaced_job_with_retries=print)
    changed = step_handlers.with_client(handler, other)
    assert step_handlers.client_of(changed) is other
    assert step_handlers.client_of(handler) is client
    assert type(changed) is type(handler)


def test_an_unsupported_client_is_refused(executor: Any) -> None:
    _, handler = executor
    with pytest.raises(InvalidArgument, match="unsupported version of dagster-k8s"):
        step_handlers.client_of(step_handlers.with_client(handler, object()))


def test_an_executor_takes_another_handler(executor: Any) -> None:
    created, handler = executor
    changed = step_handlers.with_client(handler, step_handlers.client_of(handler))
    step_handlers.replace_step_handler(created, changed)
    assert vars(created)["_step_handler"] is changed


def test_another_executor_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_handlers, "k8s_job_executor", in_process_executor)
    context = InitExecutorContext(
        job=reconstructable(single),
        executor_def=in_process_executor,
        executor_config={"retries": {"enabled": {}}},
        instance=DagsterInstance.ephemeral(),
    )
    with pytest.raises(InvalidArgument, match="its executor is a InProcessExecutor"):
        step_handlers.create_k8s_executor(context)
