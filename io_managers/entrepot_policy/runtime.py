"""The plugins' interface to a policy: one object for a process, one for each task that runs in it.

    runtime = PolicyRuntime.of_environment("kedro", scope=scope)      # None: there is no policy
    with runtime.task(Task("kedro", "pipeline", run_id, "train")) as task:
        value = task.read(reference, lambda: get_value(reference))
        reference = task.write(store, lambda: put_value(store, key, result))
    runtime.run_ended(store)

What a task reads becomes the inputs of what it writes; that is its lineage.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from entrepot.codec import CopyMode
from entrepot.errors import EntrepotError
from entrepot_io.connections import session_store
from entrepot_io.reference import Reference

from entrepot_policy.checkpoints.checkpoint_cost import (
    DEFAULT_BYTES_PER_SECOND,
    DEFAULT_LATENCY_SECONDS,
    DEFAULT_LIFETIME_SECONDS,
    CostEstimate,
    chance_of_loss,
    loss_rate,
    transfer_seconds,
)
from entrepot_policy.checkpoints.checkpointer import Checkpointer, FinalizeReport, recompute_seconds
from entrepot_policy.checkpoints.decision import Decision, decide
from entrepot_policy.recovery.failover import Failover
from entrepot_policy.recovery.planning import CombinedGraph, Graph, Plan
from entrepot_policy.recovery.recompute_cost import allow_drop
from entrepot_policy.recovery.rerun_api import LineageGraph, Rerunner, Retry
from entrepot_policy.recovery.restore import Restorer
from entrepot_policy.rules.loader import find_policy
from entrepot_policy.rules.match_target import Subject, Task
from entrepot_policy.rules.model import Policy
from entrepot_policy.rules.targets import without_credentials
from entrepot_policy.rules.validation import probe_targets
from entrepot_policy.schema.constants import DEFAULT_MAX_TASKS, DEFAULT_OVERHEAD_SECONDS
from entrepot_policy.schema.diagnostics import PolicyError
from entrepot_policy.state import lineage
from entrepot_policy.state.events import EventLog
from entrepot_policy.state.lineage import Lineage, ObjectRef
from entrepot_policy.state.statistics import Statistics

if TYPE_CHECKING:
    from types import TracebackType

    from entrepot import Store

T = TypeVar("T")


class PolicyRuntime:
    """A policy in force in one process. Thread-safe.

    Args:
        policy: the rules.
        scope: the deployment.
        address: of the store; None: the one that ``entrepot.connect`` finds.
        graph: the orchestrator's own knowledge of who makes what; used where lineage was lost with the store.
        rerunner: runs tasks again from within a read; None: the orchestrator catches ``RerunNeeded``.
        sleep, shared_reruns: as for :class:`~entrepot_policy.recovery.failover.Failover`.
        storage_options: returns those of the durable tier, for an orchestrator whose values bring credentials of their
            own; called for each session that is opened. None: what the tier's driver finds by itself.

    Raises:
        PolicyError: a target lacks its credentials.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        scope: str,
        address: str | None = None,
        graph: Graph | None = None,
        rerunner: Rerunner | None = None,
        sleep: Callable[[float], object] = time.sleep,
        shared_reruns: bool = False,
        storage_options: Callable[[], Mapping[str, Any] | None] | None = None,
    ) -> None:
        if problems := without_credentials(policy.targets.values()):
            raise PolicyError(problems)
        self.policy = policy
        self.scope = scope
        self._address = address
        self._storage_options = storage_options
        self.log = EventLog(
            scope, policy.events.folder, max_bytes=policy.events.max_bytes, enabled=policy.events.enabled
        )
        self.statistics = Statistics(lambda: self.session(""))
        self.checkpoints = Checkpointer(policy, self.statistics, self.log)
        self.restorer = Restorer(self.checkpoints.catalogs, self.session, self.statistics, self.log)
        self._orchestrator_graph = graph
        self._overhead = policy.overhead
        if self._overhead is None:
            self._overhead = DEFAULT_OVERHEAD_SECONDS if rerunner is None else 0.0
        self.graph = CombinedGraph(LineageGraph(lambda: self.session("")), graph)
        self.failover = Failover(
            policy,
            self.restorer,
            self.statistics,
            self.log,
            self.graph,
            self._subject_of,
            self.session,
            rerunner,
            sleep,
            shared_reruns,
        )

    @classmethod
    def of_environment(
        cls,
        *,
        scope: str,
        path: str | None = None,
        address: str | None = None,
        graph: Graph | None = None,
        rerunner: Rerunner | None = None,
        probe: bool = False,
        shared_reruns: bool = False,
    ) -> PolicyRuntime | None:
        """The policy in force in this process; None: there is none.

        Args:
            scope: the deployment.
            path: the file, from the orchestrator's own settings; None: the one named by ENTREPOT_POLICY.
            address, graph, rerunner, shared_reruns: as for the class.
            probe: whether to test the targets, for the process that starts a run: missing credentials are then reported
                at once rather than when the first checkpoint is written.

        Raises:
            PolicyError: it cannot be used, or a target cannot be written; the message has file and line.
            InvalidArgument: there is no such file.
        """
        policy = find_policy(path)
        if policy is None:
            return None
        if probe and policy.enabled and (problems := probe_targets(policy.all_targets())):
            raise PolicyError(problems)
        return cls(policy, scope=scope, address=address, graph=graph, rerunner=rerunner, shared_reruns=shared_reruns)

    def session(self, name: str) -> Store:
        """A session of the scope, over this process's connection.

        Raises:
            StoreUnavailable: the store cannot be reached.
        """
        options = None if self._storage_options is None else self._storage_options()
        return session_store(self._address, self.scope, name, None, options)

    def task(self, task: Task, *, started: float | None = None, **properties: object) -> TaskRun:
        """Start a task.

        Args:
            task: which.
            started: ``time.monotonic()`` of its actual start, if the orchestrator reports it late; None: now.
            properties: other properties that rules may match: ``asset``, ``dataset``, ``tags``, ``fan_out`` of
                :class:`Subject`.
        """
        return TaskRun(self, Subject(task, **properties), started)  # type: ignore[arg-type]

    def read(
        self,
        reference: Reference | ObjectRef,
        read: Callable[[], T],
        *,
        of: Subject | None = None,
        copy: CopyMode = "never",
        expected: bool = True,
    ) -> T:
        """Read a value outside any task; see :meth:`TaskRun.read`."""
        ref = ObjectRef.of(reference) if isinstance(reference, Reference) else reference

        def open_store() -> Store:
            return self.session(ref.session)

        return self.failover.read(of, ref, open_store, read, copy=copy, expected=expected)

    def _subject_of(self, ref: ObjectRef) -> Subject:
        """The properties that rules match of a value known only by reference: from its lineage, or from the
        orchestrator.
        """
        with suppress(EntrepotError):  # the store may be unavailable, which is what the rules will be consulted about
            recorded = lineage.read(self.session(""), ref)
            if recorded is not None:
                return recorded.subject()
        graph = self._orchestrator_graph
        describe = getattr(graph, "subject", None)  # of a graph that knows dataset and tags as well
        subject: Subject | None = None if describe is None else describe(ref)
        if subject is not None:
            return subject
        task = None if graph is None else graph.maker(ref)
        return Subject(task or Task("", "", "", ""), key=ref.key)

    def task_failed(self, subject: Subject, attempt: int, error: BaseException | str) -> Retry:
        """Decide about a task that failed.

        Args:
            subject: which.
            attempt: number of attempts so far, from 1 on.
            error: why it failed.
        """
        self.statistics.record_failed_attempt(subject.task)
        rule = self.failover.rule("task_failed", subject)
        rule_location = rule.location.short
        self.log.add("task_failed", of=subject.task, rule=rule_location, text=f"attempt {attempt}: {error}")
        step = next((candidate for candidate in rule.steps if candidate.name in ("retry", "fail")), None)
        if step is None or step.name == "fail":
            reason = step.reason if step is not None and step.reason else "the policy says fail"
        elif attempt > step.attempts:
            reason = f"gave up after {step.attempts} retries"
        else:
            delay = min(step.delay * step.factor ** (attempt - 1), step.max_delay)
            self.log.add(
                "retried", of=subject.task, rule=rule_location, text=f"in {delay:g} s, {attempt} of {step.attempts}"
            )
            return Retry(True, delay, rule_location, f"retry {attempt} of {step.attempts}")
        self.log.add("gave_up", of=subject.task, rule=rule_location, text=reason)
        return Retry(False, 0.0, rule_location, reason)

    def plan(self, lost: Sequence[ObjectRef], max_tasks: int = DEFAULT_MAX_TASKS) -> Plan:
        """Plan which tasks restore objects; for hooks and commands that do not come from a read.

        Raises:
            PlanningError: none do.
            StoreUnavailable: the store cannot be reached.
        """
        gone = [ref for ref in lost if self.restorer.survival(ref) == "gone"]
        return self.failover.plan(gone, max_tasks)

    def survives(self, ref: ObjectRef) -> bool:
        """Whether a value is available without rerunning its task: in the store, or from a checkpoint.

        Raises:
            StoreUnavailable: the store cannot be reached.
        """
        return self.restorer.survival(ref) != "gone"

    def run_ended(self, store: Store, wait_seconds: float | None = None) -> FinalizeReport:
        """Finish pending checkpoints; call it when a run is over, whatever its outcome.

        Args:
            store: the run's session.
            wait_seconds: timeout; None: as the policy says.

        Raises:
            StoreUnavailable: the store cannot be reached.
        """
        return self.checkpoints.finalize(store, wait_seconds)

    def record_use(self, ref: ObjectRef) -> None:
        """Measure how long values are needed, if a rule has ``when: auto``."""
        if not any(rule.when.kind == "auto" for rule in self.policy.checkpoints):
            return
        with suppress(EntrepotError):  # one measurement less
            recorded = lineage.read(self.session(ref.session), ref)
            if recorded is not None:
                self.statistics.record_output_read(recorded.task, max(0.0, time.time() - recorded.created))

    # --- decisions

    def decide(
        self, store: Store, subject: Subject, run_number: int, seconds: float, inputs: Sequence[ObjectRef]
    ) -> Decision:
        """Decide whether an output is checkpointed, with a reason.

        Args:
            store: its session.
            subject: the output, with its size.
            run_number: of its task.
            seconds: that the task took.
            inputs: what it read.
        """
        rule = self.policy.checkpoint_rule(subject)

        def recompute() -> float:
            return recompute_seconds(store, seconds, tuple(inputs))

        def estimate() -> CostEstimate:
            assert rule is not None
            template, nbytes = rule.targets[0].template, subject.nbytes or 0
            target, losses = self.statistics.target(template), self.statistics.losses()
            measured = self.statistics.task(subject.task)
            observed_seconds = max(0.0, time.time() - losses.since) if losses.since else 0.0
            rate = loss_rate(losses.losses, observed_seconds, self.policy.failures_per_day)
            lifetime = measured.lifetime or DEFAULT_LIFETIME_SECONDS
            latency = target.latency or DEFAULT_LATENCY_SECONDS
            return CostEstimate(
                recompute=recompute(),
                write=transfer_seconds(nbytes, target.write_rate or DEFAULT_BYTES_PER_SECOND, latency),
                load=transfer_seconds(nbytes, target.read_rate or DEFAULT_BYTES_PER_SECOND, latency),
                chance=chance_of_loss(rate, lifetime),
                lifetime=lifetime,
            )

        return decide(rule, subject, run_number, recompute=recompute, estimate=estimate)

    def allow_drop(self, store: Store, subject: Subject, output_lineage: Lineage, decision: Decision) -> None:
        """Declare an output recomputable to the store, if a rule of ``memory`` says so and it is certain to work.

        Args:
            store: its session.
            subject: the output.
            output_lineage: its lineage, which is in the store.
            decision: about its checkpoint.
        """
        rule = self.policy.memory_rule(subject)
        if rule is None or not rule.recompute:
            return
        assert self._overhead is not None
        allow_drop(
            store,
            rule,
            subject,
            output_lineage,
            self.log,
            rerun_refusal=self.failover.rerun_refusal,
            overhead=self._overhead,
            max_tasks=self.failover.rule("object_dropped", subject).max_tasks,
            waits_for_checkpoint=decision.write and decision.rule is not None and decision.rule.mode == "async",
        )


class TaskRun:
    """One attempt of one task; a context manager. Thread-safe, for orchestrators that read inputs in threads.

    Attributes:
        subject: the properties that rules match.
    """

    def __init__(self, runtime: PolicyRuntime, subject: Subject, started: float | None = None) -> None:
        self.subject = subject
        self._runtime = runtime
        self._started = time.monotonic() if started is None else started
        self._lock = threading.Lock()
        self._inputs: list[ObjectRef] = []  # guarded by _lock, as is the next
        self._nbytes = 0
        self._run_number = 0

    @property
    def inputs(self) -> tuple[ObjectRef, ...]:
        """Objects read so far."""
        with self._lock:
            return tuple(self._inputs)

    def read(
        self,
        reference: Reference | ObjectRef,
        read: Callable[[], T],
        *,
        of: Subject | None = None,
        copy: CopyMode = "never",
        expected: bool = True,
    ) -> T:
        """Read an input; if it is lost, do what the policy says.

        Args:
            reference: what is read.
            read: the orchestrator's way to read it.
            of: the task that made it, if the orchestrator knows; None: according to its lineage.
            copy: the copy mode that ``read`` uses.
            expected: whether the orchestrator knows that it was written; if not, an unknown value is
                ``ObjectNotFound``.

        Raises:
            RerunNeeded: the orchestrator must run tasks again.
            ObjectLost, ObjectNotFound, StoreUnavailable, ...: the policy gave up; the message says what was tried.
        """
        ref = ObjectRef.of(reference) if isinstance(reference, Reference) else reference
        value = self._runtime.read(ref, read, of=of, copy=copy, expected=expected)
        with self._lock:
            self._inputs.append(ref)
        self._runtime.record_use(ref)
        return value

    def write(self, store: Store, put: Callable[[], Reference], **properties: object) -> Reference:
        """Write an output, record its lineage, and checkpoint it if the policy says so.

        Args:
            store: the session it is written to.
            put: the orchestrator's way to write it.
            properties: properties of this output that rules may match: ``asset``, ``dataset``, ``tags``, ``fan_out``.

        Raises:
            StoreFull, StoreUnavailable: the policy gave up.
            Also whatever else ``put`` raises; and, for a sync checkpoint with ``on_error: fail``, whatever saving
                raises.
        """
        runtime = self._runtime
        subject = replace(self.subject, **properties) if properties else self.subject  # type: ignore[arg-type]

        def open_store() -> Store:
            return runtime.session(store.session_name)

        reference = runtime.failover.write(subject, open_store, put)
        self._record_output(store, reference, subject.of_value(
            key=reference.key or "", type=reference.type, nbytes=reference.nbytes
        ))  # fmt: skip
        return reference

    def _record_output(self, store: Store, reference: Reference, subject: Subject) -> None:
        runtime, ref, task = self._runtime, ObjectRef.of(reference), subject.task
        with self._lock:
            self._nbytes += reference.nbytes
            inputs, complete = lineage.distinct_inputs(self._inputs)
            run_number = self._run_number
        if not run_number:
            run_number = runtime.statistics.record_run_start(task)
            with self._lock:
                self._run_number = run_number
        seconds = time.monotonic() - self._started
        decision = runtime.decide(store, subject, run_number, seconds, inputs)
        output_lineage = Lineage(
            ref,
            task,
            inputs,
            complete,
            seconds,
            time.time(),
            decision.write,
            subject.asset,
            subject.dataset,
            tuple(sorted(subject.tags)),
            subject.type,
            subject.nbytes,
        )
        lineage_stored = True
        try:
            lineage.write(store, output_lineage)
        except EntrepotError as error:
            # The value exists; without lineage, reruns rely on what the orchestrator knows.
            lineage_stored = False
            runtime.log.add("checkpoint_failed", of=task, object=str(ref.id), text=f"lineage not stored: {error}")
        runtime.checkpoints.write(store, decision, subject, ref)
        if lineage_stored:  # after the checkpoint, which reads the value
            runtime.allow_drop(store, subject, output_lineage, decision)

    def __enter__(self) -> TaskRun:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        # Failures are counted by task_failed(), which the orchestrator calls where it knows the number of the attempt.
        if kind is None:
            self._runtime.statistics.record_run_end(self.subject.task, time.monotonic() - self._started, self._nbytes)
