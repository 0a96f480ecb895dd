"""Begin and end of a run under a policy: its setup, the earlier run that it continues, and what is left of it.

    begun --> note on disk --succeeded--> checkpoints finalized, intermediates dropped, note removed
                           |
                           +-- failed: checkpoints finalized; the note says where its values are
                           +-- killed: only the note remains, which says the same

``kedro run --only-missing-outputs`` continues from the newest note with the same pipelines, environment and parameters
whose process is gone.
"""

from __future__ import annotations

import os
from typing import Any

from entrepot.errors import EntrepotError
from entrepot_io.policy.checks import probe
from entrepot_io.policy.problems import PolicyError
from entrepot_io.policy.runtime import PolicyRuntime
from kedro.framework import project
from kedro.pipeline import Pipeline

from entrepot_kedro import policies
from entrepot_kedro.binding import Binding
from entrepot_kedro.dataset import EntrepotDataset, RunNote
from entrepot_kedro.policies import logger
from entrepot_kedro.run_notes import RunNotes, identity_of
from entrepot_kedro.runs import RunOf, label_of, registered, stored
from entrepot_kedro.transcoding import plain_name


def begin(binding: Binding, run_params: dict[str, Any], pipeline: Pipeline, catalog: Any) -> None:
    """Begin a run in this process.

    Raises:
        PolicyError: a target is not writable.
    """
    binding.forget()
    if binding.policy.enabled and (problems := probe(binding.policy.all_targets())):
        raise PolicyError(problems)
    run_id, names = str(run_params["run_id"]), run_params.get("pipeline_names")
    whole = registered(names) + pipeline
    datasets = stored(catalog, whole, pipeline)
    made = {plain_name(name) for name in pipeline.all_outputs()}
    for name, dataset in datasets.items():
        dataset.run_note = RunNote(run_id, tuple(names or ()), plain_name(name) in made, project.PACKAGE_NAME)
    own = [dataset for dataset in datasets.values() if dataset.session.ends_with_run]
    notes, session = RunNotes(binding.home().log.path), None
    if own:
        identity = identity_of(run_params)
        if run_params.get("only_missing_outputs") and (session := notes.take(identity)):
            logger.info("Going on in the session of an earlier run, '%s'", session)
            for dataset in own:
                dataset.resume(session)
        notes.write(run_id, own[0].session.name, identity)
    binding.run = RunOf(run_id, label_of(names), whole, catalog, datasets)
    if run_params.get("only_missing_outputs"):
        _expect(pipeline, datasets)
    policies.export()


def _expect(pipeline: Pipeline, datasets: dict[str, EntrepotDataset]) -> None:
    """Tell Kedro which values exist, so that it runs a node only if its outputs are needed.

    Kedro runs the node of every missing persistent dataset, and of every missing non-persistent one that a running node
    reads. So existing values are declared persistent; missing ones are made only if they are read or are outputs of the
    pipeline.
    """
    outputs, named = pipeline.outputs(), os.environ.get("ENTREPOT_SESSION")
    for name in pipeline.all_outputs() & datasets.keys():
        dataset = datasets[name]
        # A dataset that the catalog gives a session of its own is persistent whether it is read now or not.
        if dataset.session.ends_with_run or (named and dataset.session.name == named):
            dataset.expect(name in outputs or dataset.exists())


def end(binding: Binding, run_params: dict[str, Any], pipeline: Pipeline, catalog: Any, *, well: bool) -> None:
    """End a run in this process; errors here are only logged and do not change its outcome."""
    policies.withdraw()
    binding.forget()
    datasets = stored(catalog, pipeline, pipeline)
    for dataset in _one_each(datasets):
        _settle(binding.of(dataset), dataset)
    notes = RunNotes(binding.home().log.path)
    run_id = str(run_params["run_id"])
    if not well:
        notes.failed(run_id)
        return
    for name in pipeline.datasets() - pipeline.outputs() - pipeline.inputs():
        intermediate = datasets.get(name)
        if intermediate is not None and intermediate.session.ends_with_run:
            try:
                intermediate.drop()
            except EntrepotError as error:
                logger.warning("Entrepot: %s stays until its session ends: %s", name, error)
    notes.remove(run_id)


def _settle(runtime: PolicyRuntime, dataset: EntrepotDataset) -> None:
    try:
        report = runtime.run_ended(dataset.store())
    except EntrepotError as error:
        logger.warning("Entrepot: checkpoints that were put off could not be seen to: %s", error)
        return
    for key in report.abandoned:
        logger.warning("Entrepot: the checkpoint of %s was abandoned; the value itself is in the store", key)
    for problem in report.problems:
        logger.warning("Entrepot: %s", problem)


def _one_each(datasets: dict[str, EntrepotDataset]) -> list[EntrepotDataset]:
    """Return one dataset for each session that holds values of this run."""
    found = {(one.address, one.scope, one.session.name): one for one in datasets.values()}
    return list(found.values())
