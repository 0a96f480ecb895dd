"""Runs that go on with what an earlier one has computed and failed to use, without being told its session.

``kedro run --only-missing-outputs`` and ``kedro run --from-nodes ...`` (which Kedro suggests when a run fails) look for
the newest run with the same pipelines, environment and parameters that is over and did not succeed, and whose session
still has values for it: in the store, or in the session's durable tier. A journal beside the event log says which runs
there were, because the process of one that was killed cannot say so any more.

    begun --> journal entry --succeeded--> entry removed
                            |
                            +-- failed or killed: the entry says where its values are

Under a policy, :mod:`entrepot_kedro.policy.run_lifecycle` keeps the journal, and continues the newest run even if the
store has nothing of any: checkpoints may have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from entrepot.errors import EntrepotError, ObjectNotFound
from entrepot.garbage import unused_sessions
from entrepot_io.connections import has_durable_tier, scope_store
from entrepot_io.keys import kedro_key
from entrepot_io.settings import resolve
from entrepot_io.values import key_exists
from entrepot_policy.state.events import log_file
from kedro.framework.hooks import hook_impl
from kedro.io import DatasetError

from entrepot_kedro.compat.datasets import is_ephemeral
from entrepot_kedro.log import logger
from entrepot_kedro.policy.run_journal import RunJournal, run_identity, run_request
from entrepot_kedro.stored_datasets import declare_existing, one_per_session, resume_session, stored_datasets
from entrepot_kedro.values.process_session import SessionLocation
from entrepot_kedro.values.sessions import default_scope
from entrepot_kedro.values.stored_dataset import StoredDataset

if TYPE_CHECKING:
    from kedro.pipeline import Pipeline


def continue_earlier_run(
    run_params: Mapping[str, Any],
    pipeline: Pipeline,
    catalog: Any,
    unregistered: Mapping[str, StoredDataset],
    *,
    has_policy: bool,
) -> None:
    """Let the datasets of a run that begins use the session of an earlier one, if it needs what that one computed.

    Args:
        run_params: run parameters, as Kedro passes them to hooks.
        pipeline: pipeline of the run.
        catalog: catalog of the run.
        unregistered: datasets for free inputs that the catalog does not have; those that are stored are added to it.
        has_policy: whether a policy is active.
    """
    datasets = _datasets_of_run(pipeline, catalog)
    free_inputs = {name: datasets[name] for name in pipeline.inputs() & datasets.keys()}
    free_inputs |= {name: dataset for name, dataset in unregistered.items() if dataset.session.ends_with_run}
    missing = {name: dataset for name, dataset in free_inputs.items() if not _exists(dataset)}
    if run_params.get("only_missing_outputs"):
        # A run that computes nothing, as another one has saved all of its outputs, leaves the failed one as it is.
        if not _has_all_outputs(pipeline, catalog, datasets):
            # Under a policy, checkpoints may have what the store has not.
            _continue(
                run_params, datasets | free_inputs, lambda held: bool(held) and (has_policy or missing.keys() <= held)
            )
    elif missing:
        _continue(run_params, datasets | free_inputs, lambda held: missing.keys() <= held)
    for name, dataset in unregistered.items():
        if _exists(dataset):
            catalog[name] = dataset


def begin_run(run_params: Mapping[str, Any], pipeline: Pipeline, catalog: Any) -> None:
    """Write the journal entry of a run that begins, and tell Kedro what it need not compute."""
    datasets = _datasets_of_run(pipeline, catalog)
    if datasets and run_params.get("run_id") is not None:
        session = next(iter(datasets.values())).session.name
        identity, request = run_identity(dict(run_params)), run_request(run_params)
        _journal().write(str(run_params["run_id"]), session, identity, request)
        for dataset in datasets.values():
            dataset.declare_continuable()
    if run_params.get("only_missing_outputs"):
        declare_existing(pipeline, stored_datasets(catalog, pipeline, pipeline))


def end_run(run_params: Mapping[str, Any], *, succeeded: bool) -> None:
    """Note in the journal how a run has ended."""
    run_id = run_params.get("run_id")
    if run_id is None:
        return
    if succeeded:
        _journal().remove(str(run_id))
    else:
        _journal().mark_failed(str(run_id))


def note_start_nodes(start_nodes: Mapping[str, list[str]]) -> None:
    """Note in the journal with which nodes ``kedro entrepot resume`` has to start.

    Args:
        start_nodes: names of nodes by session.
    """
    for session, nodes in start_nodes.items():
        _journal().note_start_nodes(session, nodes)


class EarlierOutputs:
    """A plugin for one run: adds outputs of the run that it continues to what ``session.run()`` returns.

    Kedro returns those of the nodes that it has run. The others belong to the run as well, so they would go with its
    session, and nobody would have got them. It is not a part of the plugin's other hooks, because kedro-dagster calls
    them without ``run_result``.

    Args:
        manager: the hook manager with which it is registered, until the run ends.
    """

    def __init__(self, manager: Any) -> None:
        self._manager = manager

    @hook_impl(tryfirst=True)  # before the run's session is removed
    def after_pipeline_run(self, run_result: dict[str, Any], pipeline: Pipeline, catalog: Any) -> None:
        """Add outputs that exist to ``run_result``, which is what Kedro returns."""
        self._manager.unregister(self)
        for name, dataset in _datasets_of_run(pipeline, catalog).items():
            if name in pipeline.outputs() and name not in run_result and _exists(dataset):
                run_result[name] = dataset

    @hook_impl
    def on_pipeline_error(self) -> None:
        """Do nothing: the run can be continued in turn."""
        self._manager.unregister(self)


# --- internal


def _continue(
    run_params: Mapping[str, Any], datasets: Mapping[str, StoredDataset], suffices: Callable[[set[str]], bool]
) -> None:
    """Let datasets use the newest session whose values suffice.

    Args:
        run_params: run parameters.
        datasets: the datasets of the run's own session, by name.
        suffices: whether a session that has values of these names will do.
    """
    if not datasets:
        return
    journal, identity = _journal(), run_identity(dict(run_params))
    for run_id, session in journal.sessions(identity):
        try:
            if any(_is_in_use(dataset, session) for dataset in one_per_session(datasets)):
                continue  # another run goes on in it, as after `kedro entrepot resume`
            held = {name for name, dataset in datasets.items() if _holds(dataset, session)}
        except EntrepotError as error:
            logger.warning("Entrepot: cannot look for what run %s has computed: %s", run_id, error)
            return
        if suffices(held) and journal.take_over(
            run_id, str(run_params["run_id"]), session, identity, run_request(run_params)
        ):
            names = ", ".join(sorted(held))
            logger.info("Continuing in the session of an earlier run, '%s', which has %s", session, names)
            resume_session(datasets.values(), session)
            return


def _has_all_outputs(pipeline: Pipeline, catalog: Any, datasets: Mapping[str, StoredDataset]) -> bool:
    """Return whether everything that outlives a run exists, and a run would give back nothing else."""
    if not all(node.outputs for node in pipeline.nodes):
        return False
    returned = pipeline.outputs()
    for name in pipeline.all_outputs():
        if name in datasets or name not in catalog or is_ephemeral(catalog.get(name)):
            if name in returned:
                return False
        elif not catalog.exists(name):
            return False
    return True


def _datasets_of_run(pipeline: Pipeline, catalog: Any) -> dict[str, StoredDataset]:
    """Return the datasets whose values belong to the run, by name."""
    return {
        name: dataset
        for name, dataset in stored_datasets(catalog, pipeline, pipeline).items()
        if dataset.session.ends_with_run and not dataset.session.is_of_process
    }


def _exists(dataset: StoredDataset) -> bool:
    """Return whether a dataset exists; leaves no session that it has not found."""
    try:
        if dataset.session.ends_with_run and not dataset.session.is_of_process:
            return _holds(dataset, dataset.session.name)
        return dataset.exists()
    except (DatasetError, EntrepotError):
        return False  # the store cannot be asked; the load will report why


def _is_in_use(dataset: StoredDataset, session: str) -> bool:
    store = scope_store(dataset.address, dataset.scope, dataset.storage_options)
    listed = any(info.session == session for info in store.sessions() if info.scope == dataset.scope)
    return listed and session not in unused_sessions(store, dataset.scope)


def _holds(dataset: StoredDataset, session: str) -> bool:
    """Return whether a session has a dataset's value; leaves no session that it has not found."""
    store = scope_store(dataset.address, dataset.scope, dataset.storage_options)
    location = SessionLocation(dataset.address, dataset.scope, session)
    listed = any(info.session == session for info in store.sessions() if info.scope == dataset.scope)
    if not listed and not has_durable_tier():
        return False
    if key_exists(store.session(session), kedro_key(dataset.name)):
        return True
    if not listed:
        with suppress(ObjectNotFound):
            store.remove_session(location.session)
    return False


def _journal() -> RunJournal:
    settings = resolve()
    return RunJournal(log_file(settings.scope or default_scope()))
