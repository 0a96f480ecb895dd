"""The private names of Airflow that this package uses."""

from __future__ import annotations

from entrepot_io.private_names import PrivateName

_COMMS = "airflow.sdk.execution_time.comms"
_SEQUENCE = "airflow.sdk.execution_time.lazy_sequence"
_RUNNER = "airflow.sdk.execution_time.task_runner"
_TASK_INSTANCE = "airflow.models.taskinstance"

PRIVATE_NAMES = (
    # --- api_server
    PrivateName(
        "airflow.api_fastapi.core_api.security", "requires_access_dag", "api_server: who may see the page of a DAG"
    ),
    PrivateName(
        "airflow.api_fastapi.auth.managers.models.resource_details",
        "DagAccessEntity.XCOM",
        "api_server: the right that it takes",
    ),
    # --- components
    PrivateName(
        "airflow.jobs.job", "Job.job_type", "components: what a listener is given; its kind tells the scheduler"
    ),
    PrivateName("airflow.jobs.scheduler_job_runner", "SchedulerJobRunner.job_type", "components: the scheduler's kind"),
    PrivateName(_RUNNER, "TaskRunnerMarker", "components: what a listener is given in a task's process"),
    # --- lazy_sequences
    PrivateName(_SEQUENCE, "LazyXComSequence._xcom_arg", "lazy_sequences: the task whose results a sequence has"),
    PrivateName(_SEQUENCE, "LazyXComSequence._ti", "lazy_sequences: the run of the task that reads it"),
    PrivateName(_SEQUENCE, "_XComWrapper", "lazy_sequences: what a backend is given to deserialize an item"),
    PrivateName(
        "airflow.sdk.definitions.xcom_arg", "LazyXComSequence", "lazy_sequences: the class whose instances tasks get"
    ),
    PrivateName(_COMMS, "GetXComSequenceSlice", "lazy_sequences: requests many entries at once"),
    PrivateName(_COMMS, "XComSequenceSliceResult", "lazy_sequences: the answer"),
    # --- mapping
    PrivateName(
        "airflow.sdk.definitions.mappedoperator",
        "MappedOperator._get_specified_expand_input",
        "mapping: the XComs that a mapped task is expanded over",
    ),
    PrivateName(
        "airflow.serialization.definitions.mappedoperator",
        "SerializedMappedOperator._get_specified_expand_input",
        "mapping: the same for a task of a serialized DAG",
    ),
    PrivateName(
        "airflow.sdk.definitions.taskgroup",
        "MappedTaskGroup._expand_input",
        "mapping: the XComs that a mapped group of tasks is expanded over",
    ),
    # --- observation
    PrivateName(
        "airflow.sdk.plugins_manager",
        "get_hook_lineage_readers_plugins",
        "observation: whether anything reads lineage",
        since="3.3",
    ),
    # --- task_process
    PrivateName(
        "airflow.sdk.execution_time.xcom",
        "XCom",
        "task_process: Airflow looks up its XCom backend while it imports this module",
    ),
    PrivateName(_RUNNER, "SUPERVISOR_COMMS", "task_process: the connection to the supervisor, for XComs by name"),
    PrivateName(_COMMS, "GetXCom", "task_process: reads what Airflow stores, not the value"),
    PrivateName(_COMMS, "SetXCom", "task_process: leaves a request for the scheduler"),
    PrivateName(_COMMS, "DeleteXCom", "task_process: withdraws it"),
    PrivateName(_COMMS, "XComResult", "task_process: what the backend is given to purge"),
    PrivateName(
        "airflow.sdk.execution_time.supervisor",
        "InProcessSupervisorComms",
        "task_process: tells dag.test(), which has no scheduler",
    ),
    PrivateName(
        _RUNNER,
        "RuntimeTaskInstance._ti_context_from_server",
        "task_process: how often the task was rescheduled, which its number of tries does not count",
    ),
    PrivateName(
        "airflow.sdk.definitions._internal.templater",
        "log",
        "task_process: logs a reschedule while arguments are rendered as an error",
    ),
    # --- database
    PrivateName("airflow.utils.session", "create_session", "database: sessions of the scheduler's own connection"),
    PrivateName("airflow.utils.sqlalchemy", "with_row_locks", "database: several schedulers may serve requests"),
    PrivateName("airflow.models.dagrun", "DagRun.state", "database: which runs exist, and which succeeded"),
    PrivateName("airflow.models.dag", "DagModel.dag_id", "database: which DAGs exist"),
    PrivateName("airflow.models.xcom", "XComModel.set", "database: requests of tasks, answers, and references"),
    PrivateName("airflow.models.dagbag", "DBDagBag.get_dag_for_run", "database: the DAG of a run, as it is serialized"),
    # --- observation
    PrivateName("airflow.sdk.observability.stats", "incr", "observation: counters of Airflow's metrics", "3.3"),
    PrivateName("airflow.sdk.observability.stats", "timing", "observation: durations in them", "3.3"),
    PrivateName(
        "airflow.sdk.lineage", "get_hook_lineage_collector", "observation: what lineage is collected from", "3.3"
    ),
    PrivateName("airflow.sdk.lineage", "NoOpCollector", "observation: nothing reads what is collected", "3.3"),
    # --- run_records
    PrivateName("airflow.models.dagrun", "DagRun.clear_number", "run_records: whether a run was cleared meanwhile"),
    PrivateName("airflow.models.dagrun", "DagRun.end_date", "run_records: how long ago a run ended"),
    PrivateName("airflow.models.dagrun", "DagRun.run_after", "run_records: the newest runs of a DAG"),
    PrivateName(
        "airflow.models.asset", "AssetEvent.created_dagruns", "run_records: runs that another run's assets started"
    ),
    PrivateName("airflow.models.asset", "AssetDagRunQueue.created_at", "run_records: runs that they are to start"),
    PrivateName("airflow.models.xcom", "XComModel.value", "run_records: the references that XComs have"),
    # --- task_instances
    PrivateName(_TASK_INSTANCE, "TaskInstance.state", "task_instances: what a rerun has to wait for, or may clear"),
    PrivateName(_TASK_INSTANCE, "clear_task_instances", "task_instances: reruns exactly the tasks of a plan"),
    PrivateName(
        _TASK_INSTANCE,
        "TaskInstance.prepare_db_for_next_try",
        "task_instances: gives a rescheduled reader an attempt of its own",
    ),
    PrivateName(
        "airflow.models.taskinstancehistory",
        "TaskInstanceHistory.task_instance_id",
        "task_instances: the attempt before it, which did not fail",
    ),
    PrivateName("airflow.models.log", "Log", "task_instances: the audit log says who cleared a task"),
    PrivateName("airflow.utils.state", "State.finished", "task_instances: the states of finished tasks"),
    PrivateName(
        "airflow.utils.state", "TaskInstanceState.UP_FOR_RESCHEDULE", "task_instances: the state of a waiting reader"
    ),
)
