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
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

from entrepot_io.policy.events import Event
from entrepot_io.policy.lineage import ObjectRef
from entrepot_io.policy.model import Policy
from entrepot_io.policy.planning import Plan
from entrepot_io.policy.rerunning import Retry
from entrepot_io.policy.runtime import PolicyRuntime, TaskRun
from entrepot_io.policy.subject import Subject, Task
from entrepot_io.settings import resolve
from kedro.pipeline.node import Node

from entrepot_kedro.dataset import EntrepotDataset
from entrepot_kedro.places import default_scope
from entrepot_kedro.policies import logger
from entrepot_kedro.reruns import Reruns
from entrepot_kedro.runs import HOST, RunOf, catalog_of_caller, of_note

_ERRORS = ("gave_up",)
_INFORMATION = (
    "checkpoint_written",
    "checkpoint_queued",
    "checkpoint_pruned",
    "object_dropped",
    "rerun_done",
    "recovered",
    "reloaded",
)
_DETAILS = ("checkpoint_skipped", "droppable", "not_droppable")


class Attempt:
    """One attempt of a node.

    Args:
        node: the node.
        task: returns the node's task for rules; called on reads and writes only, because the run may not be known
            before.
    """

    def __init__(self, node: Node, task: Callable[[Node], Task]) -> None:
        self.node = node
        self._task = task
        self._lock = threading.Lock()
        self._runs: dict[int, TaskRun] = {}  # by id() of the runtime; guarded by _lock, as is _saved
        self._saved: set[str] = set()

    def run(self, runtime: PolicyRuntime) -> TaskRun:
        """Return the task run for a runtime; a node's datasets may belong to several scopes."""
        with self._lock:
            found = self._runs.get(id(runtime))
            if found is None:
                found = runtime.task(self._task(self.node), tags=frozenset(self.node.tags)).__enter__()
                self._runs[id(runtime)] = found
            return found

    def saved(self, name: str) -> bool:
        """Record that an output was saved; return whether it was the last one."""
        with self._lock:
            self._saved.add(name)
            return not inspect.isgeneratorfunction(self.node.func) and self._saved >= set(self.node.outputs)

    def end(self, error: BaseException | None = None) -> None:
        """End the attempt."""
        with self._lock:
            runs = list(self._runs.values())
            self._runs.clear()
        for run in runs:
            run.__exit__(None if error is None else type(error), error, None)


class Binding:
    """Executes a policy in one process. Thread-safe.

    Args:
        policy: the rules.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.run: RunOf | None = None
        self._lock = threading.RLock()
        self._runtimes: dict[tuple[str | None, str], PolicyRuntime] = {}  # guarded by _lock, as is _saving
        self._saving: dict[str, Attempt] = {}
        self._local = threading.local()  # .attempt: the attempt running in this thread
        self.reruns = Reruns(self)
        os.register_at_fork(after_in_child=self._after_fork_in_child)

    def _after_fork_in_child(self) -> None:
        self._lock = threading.RLock()
        self._saving = {}
        self._local = threading.local()
        self.reruns = Reruns(self)

    # --- runtimes

    def runtime(self, address: str | None, scope: str) -> PolicyRuntime:
        """Return the runtime that executes the policy for the datasets of a scope."""
        with self._lock:
            found = self._runtimes.get((address, scope))
            if found is None:
                found = PolicyRuntime(
                    self.policy, scope=scope, address=address, graph=self, rerunner=self, shared_reruns=True
                )
                found.log.watch(_tell)
                self._runtimes[address, scope] = found
            return found

    def home(self) -> PolicyRuntime:
        """Return the runtime of the project's own scope, for matters that concern no particular dataset."""
        settings = resolve()
        return self.runtime(settings.address, settings.scope or default_scope())

    def of(self, dataset: EntrepotDataset) -> PolicyRuntime:
        """Return the runtime of a dataset."""
        return self.runtime(dataset.address, dataset.scope)

    # --- Graph and Rerunner interfaces, for all runtimes

    def maker(self, ref: ObjectRef, /) -> Task | None:
        """As :meth:`~entrepot_io.policy.planning.Graph.maker`."""
        return None if self.run is None else self.run.maker(ref)

    def inputs(self, task: Task, output: ObjectRef, /) -> Any:
        """As :meth:`~entrepot_io.policy.planning.Graph.inputs`."""
        return None if self.run is None else self.run.inputs(task, output)

    def subject(self, ref: ObjectRef, /) -> Subject | None:
        """Return what rules match on for an object without lineage in the store."""
        return None if self.run is None else self.run.subject(ref)

    def rerun(self, plan: Plan, /) -> None:
        """As :meth:`~entrepot_io.policy.rerunning.Rerunner.rerun`."""
        self.reruns.rerun(plan)

    # --- current attempt

    @property
    def attempt(self) -> Attempt | None:
        """The attempt running in this thread."""
        return getattr(self._local, "attempt", None)

    @attempt.setter
    def attempt(self, attempt: Attempt | None) -> None:
        self._local.attempt = attempt

    def begin(self, node: Node) -> Attempt:
        """Return the attempt of a node that loads a dataset in this thread; start one for its first dataset."""
        known = self.attempt
        if known is None or known.node != node:
            with self._lock:  # threads that load the inputs of one node share its attempt
                known = self._saving.get(node.name)
                if known is None:
                    known = self._saving[node.name] = Attempt(node, self.task_of)
            self.attempt = known
        return known

    def task_of(self, node: Node) -> Task:
        """Return a node's task, as rules and lineage identify it."""
        return Task(HOST, "", "", node.name) if self.run is None else self.run.task(node)

    def know(self, node: Node, catalog: Any) -> None:
        """Learn about the run from a node's datasets and catalog, in a worker process that inherited nothing."""
        for name in (*node.inputs, *node.outputs):
            dataset = catalog.get(name) if name in catalog else None
            if isinstance(dataset, EntrepotDataset) and self._is_news(dataset):
                assert dataset.run_note is not None
                self.run = of_note(dataset.run_note, catalog)
                return

    def _is_news(self, dataset: EntrepotDataset) -> bool:
        note = dataset.run_note
        return note is not None and (self.run is None or self.run.id != note.run)

    def ended(self, attempt: Attempt, error: BaseException | None = None) -> None:
        """Record that a node's attempt ended in this thread."""
        with self._lock:
            if self._saving.get(attempt.node.name) is attempt:
                del self._saving[attempt.node.name]
        if self.attempt is attempt:
            self.attempt = None
        attempt.end(error)

    def forget(self, names: Iterable[str] | None = None) -> None:
        """Discard attempts that ended in a load or a save, for which Kedro calls no hook.

        Args:
            names: names of their nodes; None: no node is running any more.
        """
        with self._lock:
            for name in list(self._saving) if names is None else names:
                self._saving.pop(name, None)
        if names is None:
            self.attempt = None

    def task_failed(self, node: Node, number: int, error: BaseException | str) -> Retry:
        """Return the policy's decision about a failed attempt of a node.

        Args:
            node: the node.
            number: number of attempts so far, from 1.
            error: why it failed.
        """
        said = self.home().task_failed(Subject(self.task_of(node), tags=frozenset(node.tags)), number, error)
        if said.again:
            text = "Node '%s' failed (%s): again in %g s, %s (policy %s)"
            logger.warning(text, node.name, error, said.delay, said.reason, said.rule)
        elif said.rule != "default":
            logger.error("Node '%s' failed: %s (policy %s)", node.name, said.reason, said.rule)
        return said

    # --- values

    def load(self, dataset: EntrepotDataset) -> Any:
        """Load a dataset; if it is lost, recover it as the policy says."""
        key = dataset.wanted_key()
        if key is None:
            return dataset.read_now()
        note = dataset.run_note
        if note is not None and self._is_news(dataset):
            catalog = catalog_of_caller(sys._getframe())
            if catalog is not None:
                self.run = of_note(note, catalog)
        runtime, attempt = self.of(dataset), self.attempt
        reads = runtime if attempt is None else attempt.run(runtime)
        return reads.read(
            dataset.reference(key),
            lambda: dataset.read_now(key),
            copy=dataset.copy_mode,
            expected=note is not None and note.made,
        )

    def save(self, dataset: EntrepotDataset, data: Any) -> None:
        """Save a dataset; if a node made it, record its lineage and checkpoint it."""
        runtime, attempt = self.of(dataset), self._maker_of(dataset)
        if attempt is None:
            subject = Subject(Task(HOST, "", "", ""), key=dataset.reference().key)
            runtime.failover.write(subject, dataset.store, lambda: dataset.write_now(data))
            return
        run, name = attempt.run(runtime), self._name_of(dataset)
        # The store may be unavailable right now: apply the policy's handling, as for the value itself.
        store = runtime.failover.write(run.subject, dataset.store, dataset.store)
        fan_out = None if self.run is None else self.run.readers.get(name, 0)
        run.write(store, lambda: dataset.write_now(data), dataset=name, fan_out=fan_out)

    def survives(self, dataset: EntrepotDataset, key: str) -> bool:
        """Return whether a value can be restored without running its node."""
        return self.of(dataset).survives(dataset.reference(key))

    def _maker_of(self, dataset: EntrepotDataset) -> Attempt | None:
        if self.attempt is not None:
            return self.attempt
        # With `is_async`, saves happen in threads of their own, where no hook announces the node.
        run, name = self.run, self._name_of(dataset)
        maker = None if run is None else run.makers.get(name)
        with self._lock:
            return None if maker is None else self._saving.get(maker.name)

    def _name_of(self, dataset: EntrepotDataset) -> str:
        ref = dataset.reference()
        name = None if self.run is None else self.run.names.get(ref.id)
        return name or dataset.name


def _tell(event: Event) -> None:
    """Write an event to Kedro's log."""
    if event.kind in _DETAILS:
        say = logger.debug
    elif event.kind in _ERRORS:
        say = logger.error
    else:
        say = logger.info if event.kind in _INFORMATION else logger.warning
    about = event.key or event.task
    took = "" if event.seconds is None else f" in {event.seconds:.3f} s"
    words = f": {event.text}" if event.text else ""
    by = f" (policy {event.rule})" if event.rule else ""
    say("Entrepot: %s %s%s%s%s", event.kind.replace("_", " "), about, took, words, by)
