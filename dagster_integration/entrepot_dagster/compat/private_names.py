"""The private names of Dagster and dagster-k8s that this package uses."""

from __future__ import annotations

from entrepot_io.private_names import PrivateName

_STATE = "dagster._core.execution.plan.state"
_INPUTS = "dagster._core.execution.plan.inputs"
_TAGS = "dagster._core.storage.tags"
_FILES = "dagster._core.storage.upath_io_manager"
_STEP_DELEGATING = "dagster._core.executor.step_delegating"

PRIVATE_NAMES = (
    PrivateName(
        "dagster_shared.libraries", "DagsterLibraryRegistry.register", "library: the plugin's name and version"
    ),
    PrivateName("dagster_shared.error", "SerializableErrorInfo.cls_name", "steps: the type of a failed step's error"),
    PrivateName(
        "dagster._core.events", "EngineEventData", "events: what a re-execution or a placement says in a run's log"
    ),
    # --- steps
    PrivateName(
        "dagster._core.execution.context.input",
        "InputContext._resource_config",
        "steps: the configuration of an IO manager, which is another one's for a durable tier",
    ),
    PrivateName(
        "dagster._core.execution.context.output",
        "OutputContext._resource_config",
        "steps: the configuration of an IO manager, which is another one's for a durable tier",
    ),
    PrivateName(
        "dagster._core.execution.context.input",
        "InputContext._definition_metadata",
        "steps: the metadata of an input, for a durable tier that only they tell of missing partitions",
    ),
    PrivateName(
        "dagster._core.execution.context.input",
        "InputContext._user_generated_metadata",
        "steps: what the event of a loaded input says, without an observation of the asset",
    ),
    PrivateName(
        "dagster._core.execution.context.input",
        "InputContext._step_context",
        "steps: the step that reads an input, where the public property raises if there is none",
    ),
    PrivateName(
        "dagster._core.execution.context.output",
        "OutputContext._step_context",
        "steps: the step that writes an output, where the public property raises if there is none",
    ),
    PrivateName(
        "dagster._core.execution.context.system",
        "StepExecutionContext._known_state",
        "steps: tells a step that executes from one whose output a finished run's result is asked for",
    ),
    PrivateName(
        "dagster._core.execution.context.system",
        "StepExecutionContext.op_retry_policy",
        "steps: whether a step whose input is lost would be retried",
    ),
    PrivateName(
        "dagster._core.execution.plan.outputs", "StepOutputHandle.mapping_key", "steps: identifies an output in a plan"
    ),
    PrivateName(
        _INPUTS, "StepInput.get_step_output_handle_dependencies", "steps: the outputs that a step's input reads"
    ),
    PrivateName(
        _INPUTS,
        "UnresolvedMappedStepInput.get_step_output_handle_deps_with_placeholders",
        "steps: the same for a mapped step that is not expanded yet",
    ),
    PrivateName(
        _INPUTS,
        "UnresolvedCollectStepInput.get_step_output_handle_deps_with_placeholders",
        "steps: the same for a step that collects mapped outputs",
    ),
    PrivateName(
        "dagster._core.execution.context.op_execution_context",
        "OpExecutionContext.get_step_execution_context",
        "steps: the step behind the context of an op or asset",
    ),
    PrivateName(
        "dagster._core.execution.context.system",
        "StepExecutionContext.has_asset_partitions_for_input",
        "steps: tells an upstream asset with partitions from one without",
    ),
    PrivateName(
        "dagster._core.execution.context.system",
        "StepExecutionContext.add_asset_metadata",
        "steps: what the materialization of one of several partitions says",
    ),
    PrivateName(
        "dagster._core.execution.context.system",
        "StepExecutionContext.get_asset_metadata",
        "steps: what the step itself says of one of several partitions",
    ),
    PrivateName(_TAGS, "PARTITION_NAME_TAG", "steps: the partition of a run"),
    PrivateName(_TAGS, "ASSET_PARTITION_RANGE_START_TAG", "steps: tells a run of a range from one of a partition"),
    # --- files
    PrivateName(_FILES, "UPathIOManager._get_path", "files: where an output is, to delete it"),
    PrivateName(_FILES, "UPathIOManager._get_paths_for_partitions", "files: where the partitions of an output are"),
    # --- reexecution
    PrivateName(_TAGS, "PARENT_RUN_ID_TAG", "reexecution: finds the runs that re-execute another"),
    PrivateName(_TAGS, "ROOT_RUN_ID_TAG", "reexecution: the run that a chain of re-executions begins with"),
    PrivateName(_TAGS, "TAGS_TO_MAYBE_OMIT_ON_RETRY", "reexecution: tags that a re-execution does not inherit"),
    PrivateName(
        _STATE, "KnownExecutionState.build_resume_retry_reexecution", "reexecution: the unfinished steps of a run"
    ),
    PrivateName(_STATE, "KnownExecutionState.build_for_reexecution", "reexecution: what a run's ancestors produced"),
    PrivateName(_STATE, "KnownExecutionState.update_for_step_selection", "reexecution: the same for selected steps"),
    PrivateName(_STATE, "KnownExecutionState.parent_state", "reexecution: the run before this one"),
    PrivateName(_STATE, "PastExecutionState.produced_outputs", "reexecution: what an earlier run produced"),
    PrivateName(_STATE, "PastExecutionState.parent_state", "reexecution: the run before that one"),
    PrivateName(
        "dagster._core.execution.plan.plan", "ExecutionPlan.step_keys_to_execute", "reexecution: the steps of a plan"
    ),
    PrivateName(
        "dagster._core.execution.plan.handle",
        "StepHandle.parse_from_key",
        "reexecution: the step before expansion of a mapped step",
    ),
    PrivateName(
        "dagster._core.execution.plan.handle",
        "ResolvedFromDynamicStepHandle.unresolved_form",
        "reexecution: the step before expansion of a mapped step",
    ),
    PrivateName(
        "dagster._core.execution.api", "create_execution_plan", "reexecution: the plan with exactly the selected steps"
    ),
    PrivateName("dagster._core.execution.api", "execute_run", "reexecution: executes a run that was already created"),
    PrivateName(
        "dagster._core.definitions.reconstruct", "ReconstructableJob.get_definition", "reexecution: the code of a job"
    ),
    PrivateName(
        "dagster._utils.hosted_user_process", "recon_job_from_origin", "reexecution: the code of the job of a run"
    ),
    # --- step_handlers
    PrivateName(_STEP_DELEGATING, "StepHandler", "step_handlers: base class of a handler that wraps another"),
    PrivateName(_STEP_DELEGATING, "StepHandlerContext", "step_handlers: what a handler is given for a step"),
    PrivateName(_STEP_DELEGATING, "CheckStepHealthResult", "step_handlers: what a handler returns"),
    PrivateName(
        _STEP_DELEGATING, "StepDelegatingExecutor._step_handler", "step_handlers: wraps the handler of the executor"
    ),
    PrivateName(
        "dagster_k8s.executor", "K8sStepHandler._api_client", "step_handlers: wraps the client for one step's launch"
    ),
    PrivateName(
        "dagster_k8s.client",
        "DagsterKubernetesClient.create_namespaced_job_with_retries",
        "step_handlers: the call that has the finished job",
    ),
)
