"""Kedro's hooks, found by the entry point ``kedro.hooks``; without a policy they only see to what a run leaves.

With ParallelRunner, each worker process has its own, so which node runs is known there too; what concerns the whole run
is called in the process of ``kedro run`` alone.
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
    """The datasets that have no entry of their own and that a pattern of the user's matches."""
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
    """Name the setting that helps a node which wrote into what it got from the store."""
    if "entrepot_kedro.dataset" not in sys.modules:  # then it got nothing from there
        return
    from entrepot_io.read_only import advice, is_read_only

    if is_read_only(error):
        where = "as an argument of the dataset or its pattern in the catalog (copy: on_write), or as ENTREPOT_COPY"
        policies.logger.error("Node '%s': %s", node.name, advice(where))


class EntrepotHooks:
    """Tells the policy of sessions, runs and nodes."""

    @hook_impl
    def after_context_created(self, context: Any) -> None:
        """A session begins: what is wrong with the policy is said now.

        Raises:
            PolicyError: the policy cannot be used; file and line are in the message.
            InvalidArgument: there is no such file.
        """
        policies.forget()
        policies.current()

    @hook_impl
    def before_pipeline_run(self, run_params: dict[str, Any], pipeline: Pipeline, catalog: Any) -> None:
        """A run begins.

        Raises:
            ValueError: an input is not there, and is made by no node.
            PolicyError: a target cannot be written.
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
        """A run ended well."""
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
        """A run failed."""
        binding = policies.current()
        if binding is not None:
            from entrepot_kedro.whole_runs import end

            end(binding, run_params, pipeline, catalog, well=False)
        if (ending := _ending()) is not None:
            ending.failed(pipeline, catalog)

    @hook_impl
    def before_dataset_loaded(self, node: Node) -> None:
        """A node loads an input in this thread."""
        binding = policies.current()
        if binding is not None:
            binding.begin(node)

    @hook_impl
    def before_node_run(self, node: Node, catalog: Any, inputs: dict[str, Any]) -> None:
        """A node has its inputs."""
        binding = policies.current()
        if binding is not None:
            from entrepot_kedro.attempts import retry

            binding.know(node, catalog)
            binding.begin(node)
            retry(binding, node, catalog, inputs)

    @hook_impl
    def after_node_run(self, node: Node) -> None:
        """A node's function returned."""
        if (ending := _ending()) is not None:
            ending.node_ended(node.name)
        binding = policies.current()
        if binding is not None and not node.outputs:
            binding.ended(binding.begin(node))

    @hook_impl
    def on_node_error(self, error: Exception, node: Node) -> None:
        """A node's function raised, for the last time."""
        explain(error, node)
        binding = policies.current()
        if binding is not None:
            binding.ended(binding.begin(node), error)

    @hook_impl
    def after_dataset_saved(self, dataset_name: str, node: Node) -> None:
        """A node's output is in its place."""
        binding = policies.current()
        if binding is not None:
            attempt = binding.begin(node)
            if attempt.saved(dataset_name):
                binding.ended(attempt)


def _ending() -> ModuleType | None:
    """The module ``ending``, if this process has datasets of the store: they import it, and nobody else needs it."""
    return sys.modules.get("entrepot_kedro.ending")


hooks = EntrepotHooks()
