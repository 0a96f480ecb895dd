"""Rerunning nodes from within the load that misses their outputs.

Kedro's runner releases a dataset after its last reader *within the pipeline that it runs*. An inner run of a few nodes
would therefore release datasets that other nodes of the outer run still need, so its runner releases nothing; the outer
run's datasets are dropped at its end.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from entrepot import raw_objects
from entrepot.errors import InvalidArgument, ObjectLost, ObjectNotFound, Timeout
from entrepot.file_locks import lock_within
from entrepot_policy.recovery.planning import Plan
from entrepot_policy.state.lineage import ObjectRef
from kedro.pipeline import Pipeline
from kedro.pipeline.node import Node

from entrepot_kedro.compat.projects import hook_manager
from entrepot_kedro.compat.runners import InnerRunner
from entrepot_kedro.log import logger

if TYPE_CHECKING:
    from entrepot_policy.runtime import PolicyRuntime

    from entrepot_kedro.policy.run_context import RunContext
    from entrepot_kedro.values.stored_dataset import StoredDataset


# As long as the nodes that another process reruns may take; it may also be stopped and never end.
_WAIT_SECONDS = 3600.0
_REPORT_SECONDS = 30.0


class RerunningProcess(Protocol):
    """Interface of the process that executes the policy, as reruns need it.

    Attributes:
        run_context: the run that the process works for; None: no run is active.
        attempt: the attempt of a node that runs in this thread.
    """

    run_context: RunContext | None

    @property
    def attempt(self) -> Any: ...
    @attempt.setter
    def attempt(self, attempt: Any, /) -> None: ...
    def default_runtime(self) -> PolicyRuntime: ...
    def runtime_of(self, dataset: StoredDataset, /) -> PolicyRuntime: ...
    def discard_attempts(self, names: Iterable[str] | None = None, /) -> None: ...


class RerunExecutor:
    """The reruns of one process, one at a time.

    Args:
        binding: provides the run.
    """

    def __init__(self, binding: RerunningProcess) -> None:
        self._binding = binding
        self._lock = threading.RLock()  # reentrant: a rerun may itself miss a value
        self._depth = 0  # guarded by _lock

    def rerun(self, plan: Plan) -> None:
        """Run the nodes of a plan whose outputs are still missing.

        If several readers miss the same value, the first one reruns its node; the others wait and then find it.

        Raises:
            InvalidArgument: the pipeline of this run has no such node.
            Timeout: another process of this scope has been rerunning nodes for an hour.
            Exception: a node failed.
        """
        binding, run_context = self._binding, self._binding.run_context
        if run_context is None:
            raise InvalidArgument(f"cannot rerun {plan}: no Kedro run is active in this process")
        with self._exclusive():
            nodes = self._select_nodes(run_context, self._names_to_rerun(run_context, plan))
            if not nodes:
                return
            logger.warning("Rerunning nodes whose outputs are lost: %s", ", ".join(node.name for node in nodes))
            outer_attempt = binding.attempt
            binding.attempt = None
            try:
                InnerRunner().run(
                    Pipeline(nodes), run_context.catalog, hook_manager=hook_manager(), run_id=run_context.id
                )
            finally:
                binding.discard_attempts(node.name for node in nodes)
                binding.attempt = outer_attempt

    def _names_to_rerun(self, run_context: RunContext, plan: Plan) -> list[str]:
        return [
            task_rerun.task.name
            for task_rerun in plan.reruns
            if not all(self._is_in_store(run_context, ref) for ref in task_rerun.outputs)
        ]

    def _is_in_store(self, run_context: RunContext, ref: ObjectRef) -> bool:
        dataset = run_context.datasets.get(run_context.dataset_names.get(ref.id, ""))
        runtime = self._binding.default_runtime() if dataset is None else self._binding.runtime_of(dataset)
        try:
            # Read, because objects damaged on disk are still listed.
            raw_objects.read(runtime.session(ref.session), ref.id)
        except (ObjectLost, ObjectNotFound):
            return False
        return True

    def _select_nodes(self, run_context: RunContext, names: list[str]) -> list[Node]:
        """Return the named nodes, and the makers of those inputs that Kedro held in memory only."""
        unknown = [name for name in names if name not in run_context.nodes]
        if unknown:
            raise InvalidArgument(
                f"the pipeline {run_context.label!r} has no node {', '.join(map(repr, unknown))}, which produced a "
                "lost value: the pipeline has changed since; run it from its start"
            )
        selected: dict[str, Node] = {}
        pending = list(names)
        while pending:
            node = run_context.nodes[pending.pop()]
            if node.name in selected:
                continue
            selected[node.name] = node
            for name in node.inputs:
                maker = run_context.makers.get(name)
                if maker is not None and name not in run_context.datasets and not run_context.catalog.exists(name):
                    pending.append(maker.name)
        return list(selected.values())

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Exclude all other threads and processes of this scope from rerunning."""
        with self._lock:
            self._depth += 1
            lock_fd = -1
            try:
                if self._depth == 1:
                    path = self._binding.default_runtime().log.path.with_suffix(".reruns.lock")
                    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                    lock_fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                    _wait_for_lock(lock_fd, path)
                yield
            finally:
                self._depth -= 1
                if lock_fd >= 0:
                    os.close(lock_fd)


def _wait_for_lock(lock_fd: int, path: Path) -> None:
    for _ in range(round(_WAIT_SECONDS / _REPORT_SECONDS)):
        if lock_within(lock_fd, _REPORT_SECONDS):
            return
        logger.warning("Still waiting for another process that reruns nodes; it holds %s", path)
    raise Timeout(
        f"another process has been rerunning nodes for {_WAIT_SECONDS:.0f} s and holds {path}: see 'fuser {path}', and "
        "let it continue (kill -CONT) or end it"
    )
