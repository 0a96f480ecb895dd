"""Kedro's hooks, found by the entry point ``kedro.hooks``; they do nothing where no policy is set.

With ParallelRunner, each worker process has its own, so which node runs is known there too; what concerns the whole run
is called in the process of ``kedro run`` alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kedro.framework.hooks import hook_impl

from entrepot_kedro import policies

if TYPE_CHECKING:
    from kedro.pipeline import Pipeline
    from kedro.pipeline.node import Node


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
            PolicyError: a target cannot be written.
        """
        binding = policies.current()
        if binding is not None:
            from entrepot_kedro.whole_runs import begin

            begin(binding, run_params, pipeline, catalog)

    @hook_impl
    def after_pipeline_run(self, run_params: dict[str, Any], pipeline: Pipeline, catalog: Any) -> None:
        """A run ended well."""
        binding = policies.current()
        if binding is not None:
            from entrepot_kedro.whole_runs import end

            end(binding, run_params, pipeline, catalog, well=True)

    @hook_impl
    def on_pipeline_error(self, run_params: dict[str, Any], pipeline: Pipeline, catalog: Any) -> None:
        """A run failed."""
        binding = policies.current()
        if binding is not None:
            from entrepot_kedro.whole_runs import end

            end(binding, run_params, pipeline, catalog, well=False)

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
        binding = policies.current()
        if binding is not None and not node.outputs:
            binding.ended(binding.begin(node))

    @hook_impl
    def on_node_error(self, error: Exception, node: Node) -> None:
        """A node's function raised, for the last time."""
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


hooks = EntrepotHooks()
