"""Kedro hooks, registered by the entry point ``kedro.hooks``; without a policy they only clean up after runs.

With ParallelRunner, each worker process has its own hooks, so the running node is known there too. Hooks that concern
the whole run are called only in the process of ``kedro run``.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from types import ModuleType
from typing import TYPE_CHECKING, Any

from kedro.framework.hooks import hook_impl

from entrepot_kedro import active_runs
from entrepot_kedro.allow_list import AllowList, find_allow_list
from entrepot_kedro.catalog_names import named_entries
from entrepot_kedro.compat.projects import foreign_conf_source, manager_of
from entrepot_kedro.log import logger
from entrepot_kedro.policy import policy_registry

if TYPE_CHECKING:
    from kedro.pipeline import Pipeline
    from kedro.pipeline.node import Node

    from entrepot_kedro.values.stored_dataset import StoredDataset


def names_matching_patterns(names: Iterable[str], catalog: Any) -> set[str]:
    """Return the datasets without an entry of their own that match one of the user's patterns."""
    resolver = getattr(catalog, "config_resolver", None)
    if resolver is None:
        return set()
    return {
        name
        for name in names
        if name not in resolver.config
        and (resolver.match_dataset_pattern(name) or resolver.match_user_catch_all_pattern(name)) is not None
    }


def advise_read_only(error: Exception, node: Node) -> None:
    """Log which setting helps a node that tried to write to a read-only value from the store."""
    if "entrepot_kedro.dataset" not in sys.modules:  # then none of its values came from the store
        return
    from entrepot_io.read_only_errors import advice, is_read_only_error

    if is_read_only_error(error):
        setting_hint = (
            "as an argument of the dataset or its pattern in the catalog (copy: on_write), or as ENTREPOT_COPY"
        )
        logger.error("Node '%s': %s", node.name, advice(setting_hint))


def prepare_store(node: Node) -> None:
    """Prepare the store for a node, as set: reserve memory for its outputs (``ENTREPOT_RESERVE``), and let NumPy and
    Arrow make its values there (``ENTREPOT_ALLOCATE``).

    Raises:
        InvalidArgument: a setting is malformed.
        StoreUnavailable: values are to be made in the store because that is set, and it cannot be reached.
    """
    if "entrepot_kedro.dataset" not in sys.modules:  # then no dataset is in the store
        return
    from entrepot_io import connections
    from entrepot_io.settings import resolve

    from entrepot_kedro.values.sessions import default_scope

    settings = resolve()
    if settings.reserve is not None:
        from entrepot_kedro.node_reservations import begin_node

        begin_node(node, settings)
    if settings.allocate is not False:
        scope = settings.scope or default_scope()
        connections.make_values_in_store(settings.address, scope, required=settings.allocate is True)


class EntrepotHooks:
    """Reports sessions, runs and nodes to the policy and to the cleanup after runs.

    Attributes:
        allow_list: which datasets without a catalog entry go through the store, in the session opened last; None: none.
        session: of the session that was opened last in this thread: ``manager``, its hook manager, and
            ``conf_source``, where its configuration comes from, if that is not the project's own folder.
    """

    def __init__(self) -> None:
        self.allow_list: AllowList | None = None
        self.session = threading.local()

    @hook_impl(trylast=True)  # after hooks that change how the configuration is loaded
    def after_context_created(self, context: Any) -> None:
        """Load the policy and the allow-list at the start of a session, so that errors in them are reported now, and
        give the catalog's datasets their names.

        Raises:
            PolicyError: the policy is invalid, or names credentials that the project does not have; the message has
                file and line.
            InvalidArgument: the policy file does not exist, or the allow-list is malformed.
        """
        policy_registry.reset()
        binding = policy_registry.active()
        if binding is not None and binding.policy.credential_names():
            binding.provide_credentials(_credentials_of(context.config_loader))
        self.allow_list = find_allow_list(context)
        self.session.manager = manager_of(context)
        self.session.conf_source = foreign_conf_source(context)
        _name_datasets(context.config_loader)

    @hook_impl
    def before_pipeline_run(self, run_params: dict[str, Any], pipeline: Pipeline, catalog: Any) -> None:
        """Register datasets by the allow-list, check the inputs of a run and begin it.

        Raises:
            ValueError: an input does not exist, and no node makes it.
            StoreUnavailable: a store that the run's datasets are in cannot be reached.
            InvalidArgument: two outputs are stored under one name, or ``ENTREPOT_DURABLE`` is a folder that cannot be
                written.
            PolicyError: a target is not writable.
            InvalidArgument: datasets of one scope have different credentials, under a policy.
        """
        if (conf_source := getattr(self.session, "conf_source", None)) is not None:
            run_params = {**run_params, active_runs.CONF_SOURCE: conf_source}
        run_params, interrupted_runs = active_runs.begin(run_params, pipeline, catalog)
        for run in interrupted_runs:
            _end_interrupted_run(run)
        binding = policy_registry.active()
        unregistered: Mapping[str, StoredDataset] = {}
        if self.allow_list is not None:
            from entrepot_kedro.intermediates import register

            unregistered = register(self.allow_list, pipeline, catalog, run_params, all_nodes=binding is not None)
        _create_datasets(pipeline, catalog)
        if (session_cleanup := _loaded_session_cleanup()) is not None:  # datasets are loaded only now
            session_cleanup.on_run_begin()
        if "entrepot_kedro.dataset" in sys.modules:
            from entrepot_kedro.shared_names import check_outputs
            from entrepot_kedro.stored_datasets import join_run

            join_run(pipeline.datasets(), catalog, str(run_params["run_id"]))
            check_outputs(pipeline, catalog)
        if (held_sessions := _loaded_held_sessions()) is not None:
            held_sessions.check_stores(pipeline, catalog)
        if (continued_runs := _loaded_continued_runs()) is not None:
            continued_runs.continue_earlier_run(
                run_params, pipeline, catalog, unregistered, has_policy=binding is not None
            )
        if "entrepot_kedro.dataset" in sys.modules:
            from entrepot_kedro.pipeline_inputs import check_inputs, names_in_run

            unchecked = names_matching_patterns(pipeline.inputs(), catalog) | names_in_run(pipeline.inputs(), catalog)
            try:
                check_inputs(unchecked, catalog, can_recompute=binding is not None)
            except ValueError:
                if (session_cleanup := _loaded_session_cleanup()) is not None:
                    session_cleanup.on_run_refused(pipeline, catalog)
                raise
        if binding is not None:
            from entrepot_kedro.policy.run_lifecycle import begin_run

            begin_run(binding, run_params, pipeline, catalog)
        elif (continued_runs := _loaded_continued_runs()) is not None:
            continued_runs.begin_run(run_params, pipeline, catalog)
        if (session_cleanup := _loaded_session_cleanup()) is not None:
            session_cleanup.on_run_checked(pipeline, catalog)
        if held_sessions is not None:
            held_sessions.hold(str(run_params["run_id"]), pipeline, catalog)
            if (
                run_params.get("only_missing_outputs")
                and (manager := getattr(self.session, "manager", None)) is not None
            ):
                from entrepot_kedro.continued_runs import EarlierOutputs

                manager.register(EarlierOutputs(manager))

    @hook_impl
    def after_pipeline_run(self, run_params: dict[str, Any], pipeline: Pipeline, catalog: Any) -> None:
        """Finish a successful run."""
        run_params = active_runs.end(run_params, catalog)
        binding = policy_registry.active()
        # A run that has skipped the nodes that read `x@polars` returns `x@pandas`, which ends with its session then.
        if not run_params.get("only_missing_outputs") and any("@" in name for name in pipeline.datasets()):
            from entrepot_kedro.pipeline_inputs import drop_transcoded

            drop_transcoded(pipeline, catalog)
        if binding is not None:
            from entrepot_kedro.policy.run_lifecycle import end_run

            end_run(binding, run_params, pipeline, catalog, succeeded=True)
        elif (continued_runs := _loaded_continued_runs()) is not None:
            continued_runs.end_run(run_params, succeeded=True)
        if (session_cleanup := _loaded_session_cleanup()) is not None:
            session_cleanup.on_run_success(pipeline, catalog)
        if (held_sessions := _loaded_held_sessions()) is not None:  # only now: outputs are in use without a gap
            held_sessions.release(str(run_params.get("run_id")))

    @hook_impl
    def on_pipeline_error(self, run_params: dict[str, Any], pipeline: Pipeline, catalog: Any) -> None:
        """Finish a failed run."""
        run_params = active_runs.end(run_params, catalog)
        if (node_reservations := _loaded_node_reservations()) is not None:
            node_reservations.end_all()
        binding = policy_registry.active()
        if binding is not None:
            from entrepot_kedro.policy.run_lifecycle import end_run

            end_run(binding, run_params, pipeline, catalog, succeeded=False)
        elif (continued_runs := _loaded_continued_runs()) is not None:
            continued_runs.end_run(run_params, succeeded=False)
        if (held_sessions := _loaded_held_sessions()) is not None:
            held_sessions.release(str(run_params.get("run_id")))
        if (session_cleanup := _loaded_session_cleanup()) is not None:
            start_nodes = session_cleanup.on_run_failure(pipeline, catalog)
            if (continued_runs := _loaded_continued_runs()) is not None:
                continued_runs.note_start_nodes(start_nodes)

    @hook_impl
    def before_dataset_loaded(self, node: Node) -> None:
        """Begin, or continue, the attempt of a node that loads an input in this thread."""
        binding = policy_registry.active()
        if binding is not None:
            binding.begin_attempt(node)

    @hook_impl
    def before_node_run(self, node: Node, catalog: Any, inputs: dict[str, Any]) -> None:
        """Prepare memory and retries for a node whose inputs are loaded."""
        if (worker_process := sys.modules.get("entrepot_kedro.worker_process")) is not None:  # datasets import it
            worker_process.note_node()
        prepare_store(node)
        binding = policy_registry.active()
        if binding is not None:
            from entrepot_kedro.policy.node_retries import enable_retries

            binding.learn_run(node, catalog)
            binding.begin_attempt(node)
            enable_retries(binding, node, catalog, inputs)

    @hook_impl
    def after_node_run(self, node: Node, catalog: Any, outputs: dict[str, Any]) -> None:
        """Record a node whose function returned; without outputs, its attempt ends here."""
        if "entrepot_kedro.dataset" in sys.modules:
            from entrepot_kedro import finished_nodes

            finished_nodes.node_computed(node, catalog, outputs)
        if not node.outputs and (node_reservations := _loaded_node_reservations()) is not None:
            node_reservations.end_node(node, succeeded=True)
        binding = policy_registry.active()
        if binding is not None and not node.outputs:
            binding.end_attempt(binding.begin_attempt(node))

    @hook_impl
    def on_node_error(self, error: Exception, node: Node) -> None:
        """End the attempt of a node whose function raised for the last time."""
        advise_read_only(error, node)
        if (node_reservations := _loaded_node_reservations()) is not None:
            node_reservations.end_node(node, succeeded=False)
        binding = policy_registry.active()
        if binding is not None:
            binding.end_attempt(binding.begin_attempt(node), error)

    @hook_impl
    def after_dataset_saved(self, dataset_name: str, node: Node) -> None:
        """Record a saved output; the last one ends the node's attempt, and what it has reserved."""
        if (finished_nodes := sys.modules.get("entrepot_kedro.finished_nodes")) is not None:
            finished_nodes.output_saved(node, dataset_name)
        if (node_reservations := _loaded_node_reservations()) is not None:
            node_reservations.output_saved(node, dataset_name)
        binding = policy_registry.active()
        if binding is not None:
            attempt = binding.begin_attempt(node)
            if attempt.record_saved(dataset_name):
                binding.end_attempt(attempt)


def _end_interrupted_run(run: active_runs.ActiveRun) -> None:
    """Finish a run whose end Kedro did not report: it was interrupted, as in a notebook."""
    if (continued_runs := _loaded_continued_runs()) is not None:
        continued_runs.end_run(run.params, succeeded=False)
    if (held_sessions := _loaded_held_sessions()) is not None:
        held_sessions.release(str(run.params.get("run_id")))
    if (session_cleanup := _loaded_session_cleanup()) is not None and (catalog := run.catalog()) is not None:
        session_cleanup.close_sessions(run.pipeline, catalog)


def _name_datasets(config_loader: Any) -> None:
    """Give the datasets of a catalog's configuration their names, by setting what the loader returns for it."""
    try:
        config = config_loader["catalog"]
    except Exception as error:  # Kedro loads it too, and then reports this, if the session needs a catalog at all
        logger.debug("Entrepot: the catalog's configuration cannot be loaded: %s", error)
        return
    named = named_entries(config)
    if any(named[name] is not entry for name, entry in config.items()):
        config_loader["catalog"] = named


def _credentials_of(config_loader: Any) -> Mapping[str, Any]:
    """Return the project's credentials, as Kedro gives them to its catalog: none, if it has no such file."""
    from kedro.config import MissingConfigException

    try:
        credentials: Mapping[str, Any] = config_loader["credentials"]
    except MissingConfigException:
        return {}
    return credentials


def _create_datasets(pipeline: Pipeline, catalog: Any) -> None:
    """Create the datasets of a run, as its runner is about to do: then it is known whether any of them is in the store.

    Stops at one that cannot be created, and leaves it to the runner to report it.
    """
    from kedro.io import DatasetError

    with suppress(DatasetError):
        for name in pipeline.datasets():
            if name in catalog:
                catalog.get(name)


def _loaded_session_cleanup() -> ModuleType | None:
    """Return the module ``session_cleanup`` if this process has datasets in the store; else nobody needs it."""
    if "entrepot_kedro.dataset" not in sys.modules:
        return None
    from entrepot_kedro import session_cleanup

    return session_cleanup


def _loaded_continued_runs() -> ModuleType | None:
    """Return the module ``continued_runs`` if this process has datasets in the store; else there is nothing to go on
    with."""
    if "entrepot_kedro.dataset" not in sys.modules:
        return None
    from entrepot_kedro import continued_runs

    return continued_runs


def _loaded_held_sessions() -> ModuleType | None:
    """Return the module ``held_sessions`` if this process has datasets in the store; else a run has no sessions."""
    if "entrepot_kedro.dataset" not in sys.modules:
        return None
    from entrepot_kedro import held_sessions

    return held_sessions


def _loaded_node_reservations() -> ModuleType | None:
    """Return the module ``node_reservations`` if a node of this process may have reserved memory."""
    return sys.modules.get("entrepot_kedro.node_reservations")


hooks = EntrepotHooks()
