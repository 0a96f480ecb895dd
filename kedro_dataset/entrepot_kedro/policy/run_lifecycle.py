"""Begin and end of a run under a policy: its setup, the earlier run that it continues, and what is left of it.

    begun --> journal entry --succeeded--> checkpoints finalized, intermediates dropped, entry removed
                            |
                            +-- failed: checkpoints finalized; the entry says where its values are
                            +-- killed: only the entry remains, which says the same

``kedro run --only-missing-outputs`` continues from the newest entry with the same pipelines, environment and parameters
whose process is gone.
"""

from __future__ import annotations

from typing import Any

from entrepot.errors import EntrepotError
from entrepot_io.sessions import run_session
from entrepot_policy.rules.validation import probe_targets
from entrepot_policy.runtime import PolicyRuntime
from entrepot_policy.schema.diagnostics import PolicyError
from kedro.framework import project
from kedro.pipeline import Pipeline

from entrepot_kedro.log import logger
from entrepot_kedro.policy import policy_registry
from entrepot_kedro.policy.policy_runtime import PolicyBinding
from entrepot_kedro.policy.run_context import RunContext, label_of, registered_pipeline
from entrepot_kedro.policy.run_journal import RunJournal, run_identity, run_request
from entrepot_kedro.stored_datasets import declare_existing, one_per_session, resume_session, stored_datasets
from entrepot_kedro.values.stored_dataset import CatalogLink, RunInfo, StoredDataset
from entrepot_kedro.values.transcoding import plain_name


def begin_run(binding: PolicyBinding, run_params: dict[str, Any], pipeline: Pipeline, catalog: Any) -> None:
    """Begin a run in this process.

    Raises:
        PolicyError: a target is not writable.
        InvalidArgument: datasets of one scope have different credentials, or another process works on a run of the
            same ID.
    """
    binding.discard_attempts()
    if binding.policy.enabled and (problems := probe_targets(binding.policy.all_targets())):
        raise PolicyError(problems)
    run_id, names = str(run_params["run_id"]), run_params.get("pipeline_names")
    full_pipeline = registered_pipeline(names) + pipeline
    datasets = stored_datasets(catalog, full_pipeline, pipeline)
    produced_names = {plain_name(name) for name in pipeline.all_outputs()}
    link = CatalogLink(catalog)
    for name, dataset in datasets.items():
        dataset.join_run(run_id, name)
        is_produced = plain_name(name) in produced_names
        dataset.run_info = RunInfo(
            run_id, tuple(names or ()), is_produced, project.PACKAGE_NAME, link, binding.credentials
        )
    binding.join_run(RunContext(run_id, label_of(names), full_pipeline, catalog, datasets))
    run_datasets = [dataset for dataset in datasets.values() if dataset.session.ends_with_run]
    journal = RunJournal(binding.default_runtime().log.path)
    if run_datasets:
        identity, own_session = run_identity(run_params), run_session("kedro", run_id)
        request = run_request(run_params)
        # One whose values are in the store has been chosen already, for the datasets of this pipeline.
        earlier = next((each.session.name for each in run_datasets if each.session.name != own_session), None)
        if earlier is None and run_params.get("only_missing_outputs"):
            earlier = journal.take_session(run_id, identity, request)
            if earlier is not None:
                logger.info("Continuing in the session of an earlier run, '%s'", earlier)
        if earlier is not None:
            resume_session(run_datasets, earlier)
        journal.write(run_id, earlier or own_session, identity, request)
    if run_params.get("only_missing_outputs"):
        declare_existing(pipeline, datasets)
    policy_registry.export()


def end_run(
    binding: PolicyBinding, run_params: dict[str, Any], pipeline: Pipeline, catalog: Any, *, succeeded: bool
) -> None:
    """End a run in this process; errors here are only logged and do not change its outcome."""
    policy_registry.withdraw()
    binding.discard_attempts()
    datasets = stored_datasets(catalog, pipeline, pipeline)
    for dataset in one_per_session(datasets):
        _finalize(binding.runtime_of(dataset), dataset)
    journal = RunJournal(binding.default_runtime().log.path)
    run_id = str(run_params["run_id"])
    if not succeeded:
        journal.mark_failed(run_id)
        return
    for name in pipeline.datasets() - pipeline.outputs() - pipeline.inputs():
        intermediate = datasets.get(name)
        if intermediate is not None and intermediate.session.ends_with_run:
            try:
                intermediate.drop()
            except EntrepotError as error:
                logger.warning("Entrepot: cannot drop %s; it stays until its session ends: %s", name, error)
    journal.remove(run_id)


def _finalize(runtime: PolicyRuntime, dataset: StoredDataset) -> None:
    try:
        report = runtime.run_ended(dataset.store())
    except EntrepotError as error:
        logger.warning("Entrepot: cannot finalize the pending checkpoints: %s", error)
        return
    for key in report.abandoned:
        logger.warning("Entrepot: the checkpoint of %s was abandoned; the value itself is in the store", key)
    for problem in report.problems:
        logger.warning("Entrepot: %s", problem)
