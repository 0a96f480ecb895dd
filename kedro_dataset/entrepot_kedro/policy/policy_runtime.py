"""Execution of a policy in a Kedro process: tracks which node runs and what it reads and writes, and reruns nodes.

    a node's first dataset is loaded --> attempt --load/save--> TaskRun of the dataset's scope
                                            |
                                            +-- its last output is saved: the attempt succeeded
                                            +-- its function raised, and the policy does not retry: it failed

A Kedro dataset is identified by its place in the catalog, so values are matched by ID, whichever process made them.
"""

from __future__ import annotations

import inspect
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from entrepot.errors import InvalidArgument
from entrepot_io.settings import resolve
from entrepot_policy.recovery.planning import Plan
from entrepot_policy.recovery.rerun_api import Retry
from entrepot_policy.rules.match_target import Subject, Task
from entrepot_policy.rules.model import Policy
from entrepot_policy.runtime import PolicyRuntime, TaskRun
from entrepot_policy.state.events import Event
from entrepot_policy.state.lineage import ObjectRef
from kedro.pipeline.node import Node

from entrepot_kedro.log import logger
from entrepot_kedro.policy.reruns import RerunExecutor
from entrepot_kedro.policy.run_context import ORCHESTRATOR, RunContext, rebuild_run_context
from entrepot_kedro.values.sessions import default_scope
from entrepot_kedro.values.stored_dataset import RunInfo, StoredDataset

# By address and scope: the name of the dataset whose options of the durable tier were the first, and these.
_StorageOptions = dict[tuple[str | None, str], tuple[str, Mapping[str, Any]]]
_ERROR_KINDS = ("gave_up",)
_INFO_KINDS = (
    "checkpoint_written",
    "checkpoint_queued",
    "checkpoint_pruned",
    "object_dropped",
    "rerun_done",
    "recovered",
    "reloaded",
)
_DEBUG_KINDS = ("checkpoint_skipped", "droppable", "not_droppable")


class Attempt:
    """One attempt of a node.

    Args:
        node: the node.
        task_for: returns the node's task for rules; called on reads and writes only, because the run may not be
            known before.
    """

    def __init__(self, node: Node, task_for: Callable[[Node], Task]) -> None:
        self.node = node
        self._task_for = task_for
        self._lock = threading.Lock()
        self._task_runs: dict[int, TaskRun] = {}  # by id() of the runtime; guarded by _lock, as is _saved_outputs
        self._saved_outputs: set[str] = set()

    def task_run(self, runtime: PolicyRuntime) -> TaskRun:
        """Return the task run for a runtime; a node's datasets may belong to several scopes."""
        with self._lock:
            task_run = self._task_runs.get(id(runtime))
            if task_run is None:
                task_run = runtime.task(self._task_for(self.node), tags=frozenset(self.node.tags)).__enter__()
                self._task_runs[id(runtime)] = task_run
            return task_run

    def record_saved(self, name: str) -> bool:
        """Record that an output was saved; return whether it was the last one."""
        with self._lock:
            self._saved_outputs.add(name)
            return not inspect.isgeneratorfunction(self.node.func) and self._saved_outputs >= set(self.node.outputs)

    def end(self, error: BaseException | None = None) -> None:
        """End the attempt."""
        with self._lock:
            task_runs = list(self._task_runs.values())
            self._task_runs.clear()
        for task_run in task_runs:
            task_run.__exit__(None if error is None else type(error), error, None)


class PolicyBinding:
    """Executes a policy in one process. Thread-safe.

    Args:
        policy: the rules.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.credentials: Mapping[str, Any] = {}  # those that the targets name
        self.run_context: RunContext | None = None
        self._lock = threading.RLock()
        # Guarded by _lock, as are the next two; by address and scope.
        self._runtimes: dict[tuple[str | None, str], PolicyRuntime] = {}
        self._storage_options: _StorageOptions = {}
        self._attempts: dict[str, Attempt] = {}
        self._local = threading.local()  # .attempt: the attempt running in this thread
        self.reruns = RerunExecutor(self)
        os.register_at_fork(after_in_child=self._after_fork_in_child)

    def _after_fork_in_child(self) -> None:
        self._lock = threading.RLock()
        self._attempts = {}
        self._local = threading.local()
        self.reruns = RerunExecutor(self)

    # --- runtimes

    def runtime(self, address: str | None, scope: str) -> PolicyRuntime:
        """Return the runtime that executes the policy for the datasets of a scope."""
        with self._lock:
            runtime = self._runtimes.get((address, scope))
            if runtime is None:
                runtime = PolicyRuntime(
                    self.policy,
                    scope=scope,
                    address=address,
                    graph=self,
                    rerunner=self,
                    shared_reruns=True,
                    storage_options=partial(self._options_of, address, scope),
                )
                runtime.log.watch(_log_event)
                self._runtimes[address, scope] = runtime
            return runtime

    def default_runtime(self) -> PolicyRuntime:
        """Return the runtime of the project's own scope, for matters that concern no particular dataset."""
        settings = resolve()
        return self.runtime(settings.address, settings.scope or default_scope())

    def runtime_of(self, dataset: StoredDataset) -> PolicyRuntime:
        """Return the runtime of a dataset.

        Raises:
            InvalidArgument: it has other credentials than the datasets of its scope that were used before.
        """
        if dataset.storage_options is not None:  # of a load outside of any run: a notebook's, say
            with self._lock:
                _add_storage_options(self._storage_options, dataset.name, dataset)
        return self.runtime(dataset.address, dataset.scope)

    def _options_of(self, address: str | None, scope: str) -> Mapping[str, Any] | None:
        with self._lock:
            _, options = self._storage_options.get((address, scope), ("", None))
            return options

    # --- Graph and Rerunner interfaces, for all runtimes

    def maker(self, ref: ObjectRef, /) -> Task | None:
        """As :meth:`~entrepot_policy.recovery.planning.Graph.maker`."""
        return None if self.run_context is None else self.run_context.maker(ref)

    def inputs(self, task: Task, output: ObjectRef, /) -> Any:
        """As :meth:`~entrepot_policy.recovery.planning.Graph.inputs`."""
        return None if self.run_context is None else self.run_context.inputs(task, output)

    def subject(self, ref: ObjectRef, /) -> Subject | None:
        """Return what rules match on for an object without lineage in the store."""
        return None if self.run_context is None else self.run_context.subject(ref)

    def rerun(self, plan: Plan, /) -> None:
        """As :meth:`~entrepot_policy.recovery.rerun_api.Rerunner.rerun`."""
        self.reruns.rerun(plan)

    # --- the run

    def join_run(self, run_context: RunContext) -> None:
        """Work for a run from now on, with the credentials that its datasets have for the durable tier.

        Raises:
            InvalidArgument: datasets of one scope have different credentials.
        """
        storage_options: _StorageOptions = {}
        for name, dataset in run_context.datasets.items():
            _add_storage_options(storage_options, name, dataset)
        with self._lock:
            self._storage_options = storage_options
        self.run_context = run_context

    def _join_run_of(self, run_info: RunInfo, catalog: Any) -> None:
        """Join the run of another process."""
        self.provide_credentials(run_info.credentials)
        self.join_run(rebuild_run_context(run_info, catalog))

    def provide_credentials(self, credentials: Mapping[str, Any]) -> None:
        """Let the policy's targets use the credentials that they name; those already provided stay.

        Args:
            credentials: of the project, by name.

        Raises:
            PolicyError: a target names others.
        """
        names = self.policy.credential_names()
        if names:
            self.policy = self.policy.with_credentials(credentials)
            self.credentials = {name: credentials[name] for name in names}

    # --- current attempt

    @property
    def attempt(self) -> Attempt | None:
        """The attempt running in this thread."""
        return getattr(self._local, "attempt", None)

    @attempt.setter
    def attempt(self, attempt: Attempt | None) -> None:
        self._local.attempt = attempt

    def begin_attempt(self, node: Node) -> Attempt:
        """Return the attempt of a node that loads a dataset in this thread; start one for its first dataset."""
        attempt = self.attempt
        if attempt is None or attempt.node != node:
            with self._lock:  # threads that load the inputs of one node share its attempt
                attempt = self._attempts.get(node.name)
                if attempt is None:
                    attempt = self._attempts[node.name] = Attempt(node, self.task_for)
            self.attempt = attempt
        return attempt

    def task_for(self, node: Node) -> Task:
        """Return a node's task, as rules and lineage identify it."""
        return Task(ORCHESTRATOR, "", "", node.name) if self.run_context is None else self.run_context.task(node)

    def learn_run(self, node: Node, catalog: Any) -> None:
        """Learn about the run from a node's datasets and catalog, in a worker process that inherited nothing."""
        for name in (*node.inputs, *node.outputs):
            dataset = catalog.get(name) if name in catalog else None
            if isinstance(dataset, StoredDataset) and self._is_new_run(dataset):
                assert dataset.run_info is not None
                self._join_run_of(dataset.run_info, catalog)
                return

    def _is_new_run(self, dataset: StoredDataset) -> bool:
        run_info = dataset.run_info
        return run_info is not None and (self.run_context is None or self.run_context.id != run_info.run_id)

    def end_attempt(self, attempt: Attempt, error: BaseException | None = None) -> None:
        """Record that a node's attempt ended in this thread."""
        with self._lock:
            if self._attempts.get(attempt.node.name) is attempt:
                del self._attempts[attempt.node.name]
        if self.attempt is attempt:
            self.attempt = None
        attempt.end(error)

    def discard_attempts(self, names: Iterable[str] | None = None) -> None:
        """Discard attempts that ended in a load or a save, for which Kedro calls no hook.

        Args:
            names: names of their nodes; None: no node is running any more.
        """
        with self._lock:
            for name in list(self._attempts) if names is None else names:
                self._attempts.pop(name, None)
        if names is None:
            self.attempt = None

    def task_failed(self, node: Node, number: int, error: BaseException | str) -> Retry:
        """Return the policy's decision about a failed attempt of a node.

        Args:
            node: the node.
            number: number of attempts so far, from 1.
            error: why it failed.
        """
        decision = self.default_runtime().task_failed(
            Subject(self.task_for(node), tags=frozenset(node.tags)), number, error
        )
        if decision.again:
            text = "Node '%s' failed (%s): retrying in %g s, %s (policy %s)"
            logger.warning(text, node.name, error, decision.delay, decision.reason, decision.rule)
        elif decision.rule != "default":
            logger.error("Node '%s' failed: %s (policy %s)", node.name, decision.reason, decision.rule)
        return decision

    # --- values

    def load(self, dataset: StoredDataset) -> Any:
        """Load a dataset; if it is lost, recover it as the policy says."""
        key = dataset.load_key()
        if key is None:
            return dataset.read_direct()
        run_info = dataset.run_info
        if run_info is not None and self._is_new_run(dataset):
            catalog = run_info.catalog.catalog()
            if catalog is not None:
                self._join_run_of(run_info, catalog)
        runtime, attempt = self.runtime_of(dataset), self.attempt
        reader = runtime if attempt is None else attempt.task_run(runtime)
        return reader.read(
            dataset.reference(key),
            lambda: dataset.read_direct(key),
            copy=dataset.copy_mode,
            expected=run_info is not None and run_info.is_produced,
        )

    def save(self, dataset: StoredDataset, data: Any) -> None:
        """Save a dataset; if a node made it, record its lineage and checkpoint it."""
        runtime, attempt = self.runtime_of(dataset), self._attempt_of(dataset)
        if attempt is None:
            subject = Subject(Task(ORCHESTRATOR, "", "", ""), key=dataset.reference().key)
            runtime.failover.write(subject, dataset.store, lambda: dataset.write_direct(data))
            return
        task_run, name = attempt.task_run(runtime), self._dataset_name(dataset)
        # The store may be unavailable right now: apply the policy's handling, as for the value itself.
        store = runtime.failover.write(task_run.subject, dataset.store, dataset.store)
        fan_out = None if self.run_context is None else self.run_context.reader_counts.get(name, 0)
        task_run.write(store, lambda: dataset.write_direct(data), dataset=name, fan_out=fan_out)

    def survives(self, dataset: StoredDataset, key: str) -> bool:
        """Return whether a value can be restored without running its node."""
        return self.runtime_of(dataset).survives(dataset.reference(key))

    def _attempt_of(self, dataset: StoredDataset) -> Attempt | None:
        if self.attempt is not None:
            return self.attempt
        # With `is_async`, saves happen in threads of their own, where no hook announces the node.
        run_context, name = self.run_context, self._dataset_name(dataset)
        maker = None if run_context is None else run_context.makers.get(name)
        with self._lock:
            return None if maker is None else self._attempts.get(maker.name)

    def _dataset_name(self, dataset: StoredDataset) -> str:
        ref = dataset.reference()
        name = None if self.run_context is None else self.run_context.dataset_names.get(ref.id)
        return name or dataset.name


def _add_storage_options(options_by_scope: _StorageOptions, name: str, dataset: StoredDataset) -> None:
    """Add a dataset's options of the durable tier, if it has any.

    Raises:
        InvalidArgument: another dataset of its scope has others.
    """
    options = dataset.storage_options
    if options is None:
        return
    first_name, first_options = options_by_scope.setdefault((dataset.address, dataset.scope), (name, options))
    if first_options != options:
        raise InvalidArgument(
            f"the datasets {first_name!r} and {name!r} have different credentials, but under a policy, what is lost of "
            f"the scope {dataset.scope!r} is read with one set of them: give both datasets the same credentials, or "
            "one of them a scope of its own"
        )


def _log_event(event: Event) -> None:
    """Write an event to Kedro's log."""
    if event.kind in _DEBUG_KINDS:
        log_method = logger.debug
    elif event.kind in _ERROR_KINDS:
        log_method = logger.error
    else:
        log_method = logger.info if event.kind in _INFO_KINDS else logger.warning
    concerned = event.key or event.task
    duration = "" if event.seconds is None else f" in {event.seconds:.3f} s"
    detail = f": {event.text}" if event.text else ""
    rule_text = f" (policy {event.rule})" if event.rule else ""
    log_method("Entrepot: %s %s%s%s%s", event.kind.replace("_", " "), concerned, duration, detail, rule_text)
