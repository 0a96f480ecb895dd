"""Kedro hooks, registered by the entry point ``kedro.hooks``; without a policy they only clean up after runs.

With ParallelRunner, each worker process has its own hooks, so the running node is known there too. Hooks that concern
the whole run are called only in the process of ``kedro run``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from types import ModuleType
from typing import TYPE_CHECKING, Any

from kedro.framework.hooks import hook_impl

from entrepot_kedro import policies

if TYPE_CHECKING:
    from kedro.pipeline import Pipeline
    from kedro.pipeline.node import Node


def by_pattern(names: Iterable[str], catalog: Any) -> set[str]:
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


def explain(error: Exception, node: Node) -> None:
    """Log which setting helps a node that tried to write to a read-only value from the store."""
    if "entrepot_kedro.dataset" not in sys.modules:  # then none of its values came from the store
        return
    from entrepot_io.read_only import advice, is_read_only

    if is_read_only(error):
        where = "as an argument of the dataset or its pattern in the catalog (copy: on_write), or as ENTREPOT_COPY"
        policies.logger.error("Node '%s': %s", node.name, advice(where))


class EntrepotHooks:
    """Reports sessions, runs and nodes to the policy and to the cleanup after runs."""

    @hook_impl
    def after_context_created(self, context: Any) -> None:
        """Load the policy at the start of a session, so that errors in it are reported now.

        Raises:
            PolicyError: the policy is invalid; the message has file and line.
            InvalidArgument: the policy file does not exist.
        """
        policies.forget()
        policies.current()

    @hook_impl
    def before_pipeline_run(self, run_params: dict[str, Any], pipeline: Pipeline, catalog: Any) -> None:
        """Check the inputs of a run and begin it.

        Raises:
            ValueError: an input does not exist, and no node makes it.
            PolicyError: a target is not writable.
        """
        if (ending := _ending()) is not None:
            ending.begun()
        binding = policies.current()
        if wanted := by_pattern(pipeline.inputs(), catalog):
            from entrepot_kedro.pipeline_inputs import check_inputs

            try:
                check_inputs(wanted, catalog, remade=binding is not None)
            except ValueError:
                if (ending := _ending()) is not None:
                    ending.not_begun(pipeline, catalog)
                raise
        if binding is not None:
            from entrepot_kedro.whole_runs import begin

            begin(binding, run_params, pipeline, catalog)

    @hook_impl
    def after_pipeline_run(self, run_params: dict[str, Any], pipeline: Pipeline, catalog: Any) -> None:
        """Finish a successful run."""
        binding = policies.current()
        if any("@" in name for name in pipeline.datasets()):
            from entrepot_kedro.pipeline_inputs import drop_transcoded

            drop_transcoded(pipeline, catalog)
        if binding is not None:
            from entrepot_kedro.whole_runs import end

            end(binding, run_params, pipeline, catalog, well=True)
        if (ending := _ending()) is not None:
            ending.ended_well(pipeline, catalog)

    @hook_impl
    def on_pipeline_error(self, run_params: dict[str, Any], pipeline: Pipeline, catalog: Any) -> None:
        """Finish a failed run."""
        binding = policies.current()
        if binding is not None:
            from entrepot_kedro.whole_runs import end

            end(binding, run_params, pipeline, catalog, well=False)
        if (ending := _ending()) is not None:
            ending.failed(pipeline, catalog)

    @hook_impl
    def before_dataset_loaded(self, node: Node) -> None:
        """Begin, or continue, the attempt of a node that loads an input in this thread."""
        binding = policies.current()
        if binding is not None:
            binding.begin(node)

    @hook_impl
    def before_node_run(self, node: Node, catalog: Any, inputs: dict[str, Any]) -> None:
        """Prepare retries for a node whose inputs are loaded."""
        binding = policies.current()
        if binding is not None:
            from entrepot_kedro.attempts import retry

            binding.know(node, catalog)
            binding.begin(node)
            retry(binding, node, catalog, inputs)

    @hook_impl
    def after_node_run(self, node: Node) -> None:
        """Record a node whose function returned; without outputs, its attempt ends here."""
        if (ending := _ending()) is not None:
            ending.node_ended(node.name)
        binding = policies.current()
        if binding is not None and not node.outputs:
            binding.ended(binding.begin(node))

    @hook_impl
    def on_node_error(self, error: Exception, node: Node) -> None:
        """End the attempt of a node whose function raised for the last time."""
        explain(error, node)
        binding = policies.current()
        if binding is not None:
            binding.ended(binding.begin(node), error)

    @hook_impl
    def after_dataset_saved(self, dataset_name: str, node: Node) -> None:
        """Record a saved output; the last one ends the node's attempt."""
        binding = policies.current()
        if binding is not None:
            attempt = binding.begin(node)
            if attempt.saved(dataset_name):
                binding.ended(attempt)


def _ending() -> ModuleType | None:
    """Return the module ``ending`` if this process has datasets in the store; they import it, nobody else needs it."""
    return sys.modules.get("entrepot_kedro.ending")


hooks = EntrepotHooks()
