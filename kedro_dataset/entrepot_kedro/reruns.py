"""Rerunning nodes from within the load that misses their outputs.

Kedro's runner releases a dataset after its last reader *within the pipeline that it runs*. An inner run of a few nodes
would therefore release datasets that other nodes of the outer run still need, so its runner releases nothing; the outer
run's datasets are dropped at its end.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from entrepot import parts
from entrepot.errors import InvalidArgument, ObjectLost, ObjectNotFound
from entrepot_io.policy.lineage import ObjectRef
from entrepot_io.policy.planning import Plan
from kedro.pipeline import Pipeline
from kedro.pipeline.node import Node
from kedro.runner import SequentialRunner

from entrepot_kedro.policies import logger

if TYPE_CHECKING:
    from entrepot_kedro.binding import Binding
    from entrepot_kedro.runs import RunOf


class _InnerRunner(SequentialRunner):
    """Runs nodes in this thread without releasing their datasets."""

    @staticmethod
    def _release_datasets(node: Node, catalog: Any, load_counts: dict[str, int], pipeline: Pipeline) -> None:
        pass

    def _suggest_resume_scenario(self, pipeline: Pipeline, done_nodes: Iterable[Node], catalog: Any) -> None:
        pass  # left to the outer runner


class Reruns:
    """The reruns of one process, one at a time.

    Args:
        binding: provides the run.
    """

    def __init__(self, binding: Binding) -> None:
        self._binding = binding
        self._lock = threading.RLock()  # reentrant: a rerun may itself miss a value
        self._depth = 0  # guarded by _lock

    def rerun(self, plan: Plan) -> None:
        """Run the nodes of a plan whose outputs are still missing.

        If several readers miss the same value, the first one reruns its node; the others wait and then find it.

        Raises:
            InvalidArgument: the pipeline of this run has no such node.
            Exception: a node failed.
        """
        binding, run = self._binding, self._binding.run
        if run is None:
            raise InvalidArgument(f"no run of Kedro is known here, so {plan} cannot run again")
        with self._alone():
            nodes = self._nodes(run, self._still_gone(run, plan))
            if not nodes:
                return
            logger.warning("Running again, because their outputs are lost: %s", ", ".join(node.name for node in nodes))
            before = binding.attempt
            binding.attempt = None
            try:
                _InnerRunner().run(Pipeline(nodes), run.catalog, hook_manager=_hook_manager(), run_id=run.id)
            finally:
                binding.forget(node.name for node in nodes)
                binding.attempt = before

    def _still_gone(self, run: RunOf, plan: Plan) -> list[str]:
        return [one.task.name for one in plan.reruns if not all(self._is_there(run, ref) for ref in one.makes)]

    def _is_there(self, run: RunOf, ref: ObjectRef) -> bool:
        dataset = run.datasets.get(run.names.get(ref.id, ""))
        runtime = self._binding.home() if dataset is None else self._binding.of(dataset)
        try:
            parts.read(runtime.session(ref.session), ref.id)  # read, because objects damaged on disk are still listed
        except (ObjectLost, ObjectNotFound):
            return False
        return True

    def _nodes(self, run: RunOf, names: list[str]) -> list[Node]:
        """Return the named nodes, and the makers of those inputs that Kedro held in memory only."""
        unknown = [name for name in names if name not in run.nodes]
        if unknown:
            raise InvalidArgument(
                f"the pipeline {run.label!r} has no node {', '.join(map(repr, unknown))}, which made a value that is "
                "lost: the pipeline has changed since; run it from its start"
            )
        found: dict[str, Node] = {}
        waiting = list(names)
        while waiting:
            node = run.nodes[waiting.pop()]
            if node.name in found:
                continue
            found[node.name] = node
            for name in node.inputs:
                maker = run.makers.get(name)
                if maker is not None and name not in run.datasets and not run.catalog.exists(name):
                    waiting.append(maker.name)
        return list(found.values())

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Exclude all other threads and processes of this scope from rerunning."""
        with self._lock:
            self._depth += 1
            file = -1
            try:
                if self._depth == 1:
                    path = self._binding.home().log.path.with_suffix(".reruns.lock")
                    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                    fcntl.flock(file, fcntl.LOCK_EX)
                yield
            finally:
                self._depth -= 1
                if file >= 0:
                    os.close(file)


def _hook_manager() -> Any:
    """Return a manager with the hooks of project and plugins, as Kedro creates it for a node in its own process."""
    from kedro.framework.hooks.manager import _create_hook_manager, _register_hooks, _register_hooks_entry_points
    from kedro.framework.project import settings

    manager = _create_hook_manager()
    _register_hooks(manager, settings.HOOKS)
    _register_hooks_entry_points(manager, settings.DISABLE_HOOKS_FOR_PLUGINS)
    return manager
