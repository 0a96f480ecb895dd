"""Handles a value that cannot be read or written: tries a rule's steps in order until one helps.

A read fails --event--> rule --step--> helped: the value
                          ^      |
                          |      `-- did not help: the next step; after the last one, start over with back-off
                          `-- no attempts left, or step ``fail``: the first error again, with all that was tried

All of it happens in the reading process, because no orchestrator calls its hooks when a task is killed. Each step may
be interrupted at any point: a reload seals nothing before its checksums were compared, and whatever was loaded is there
for the next attempt, even in another process.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from entrepot.codec import CopyMode
from entrepot.errors import (
    CorruptData,
    EntrepotError,
    InvalidArgument,
    ObjectDropped,
    ObjectLost,
    ObjectNotFound,
    StoreFull,
    StoreUnavailable,
    Timeout,
)
from entrepot.phrases import count_of

from entrepot_policy.recovery.incident import DEFAULT_RULES, Incident, StopRecovery
from entrepot_policy.recovery.planning import Graph, Plan, PlanningError, RerunNeeded, plan_reruns
from entrepot_policy.recovery.rerun_api import Rerunner, record_rerun, traced_rerun
from entrepot_policy.recovery.restore import Restorer
from entrepot_policy.rules.match_target import Subject
from entrepot_policy.rules.model import FailoverRule, Policy, Step
from entrepot_policy.state import generations, lineage
from entrepot_policy.state.events import EventLog
from entrepot_policy.state.lineage import ObjectRef
from entrepot_policy.state.statistics import Statistics

if TYPE_CHECKING:
    from entrepot import Store

T = TypeVar("T")
MAX_EVICTED = 64
MAX_RERUN_DEPTH = 8  # of nested reruns


class Failover:
    """Carries out the rules of ``failover`` in one process. Thread-safe.

    Args:
        policy: the rules.
        restorer: restores values without their tasks.
        statistics: receives losses.
        log: receives all events.
        graph: who made what.
        subject_of: an object as rules see it.
        open_session: a session of the scope by its name.
        rerunner: of the orchestrator; None: reruns are requested by raising :class:`RerunNeeded`.
        sleep: waits some seconds.
        shared_reruns: whether one rerun serves all readers that miss the same generation of an object, as in an
            orchestrator that clears tasks of the same run; then their requests count once.
    """

    def __init__(
        self,
        policy: Policy,
        restorer: Restorer,
        statistics: Statistics,
        log: EventLog,
        graph: Graph,
        subject_of: Callable[[ObjectRef], Subject],
        open_session: Callable[[str], Store],
        rerunner: Rerunner | None = None,
        sleep: Callable[[float], object] = time.sleep,
        shared_reruns: bool = False,
    ) -> None:
        self._shared_reruns = shared_reruns
        self._policy = policy
        self._restorer = restorer
        self._statistics = statistics
        self._log = log
        self._graph = graph
        self._subject_of = subject_of
        self._open_session = open_session
        self._rerunner = rerunner
        self._sleep = sleep
        self._rerun_state = threading.local()  # .depth: nesting depth of this thread's reruns

    def rule(self, event: str, subject: Subject) -> FailoverRule:
        """The rule that decides: the policy's first matching one, else the default."""
        return self._policy.failover_rule(event, subject) or DEFAULT_RULES[event]

    # --- reading and writing

    def read(
        self,
        subject: Subject | None,
        ref: ObjectRef,
        open_store: Callable[[], Store],
        read: Callable[[], T],
        *,
        copy: CopyMode = "never",
        expected: bool = True,
    ) -> T:
        """Read a value; if that fails, do what the policy says.

        Args:
            subject: the task that made the value, if the orchestrator knows it; None: its lineage is consulted if the
                read fails.
            ref: the value.
            open_store: its session.
            read: the orchestrator's way to read it; called again after a step that helped.
            copy: copy mode for reading a reloaded value, if ``read`` insists on the original generation.
            expected: whether the orchestrator knows that it was written. If not, and neither lineage nor a checkpoint
                knows it, it never existed, and nothing is done.

        Raises:
            RerunNeeded: the policy wants tasks to run again, and the orchestrator gave no :class:`Rerunner`.
            ObjectLost, ObjectNotFound, StoreUnavailable, ...: what ``read`` raised, with what was tried, when the
                policy gives up.
        """
        try:
            return read()
        except RerunNeeded:
            raise
        except (ObjectLost, ObjectNotFound, StoreUnavailable) as error:
            if isinstance(error, ObjectNotFound) and not expected and self._never_written(ref):
                raise
            incident = Incident("object_lost", subject or self._subject_of(ref), ref, open_store, error, copy)
        try:
            return self._recover_read(incident, ref, open_store, read)
        finally:
            # Its error refers to this frame and its callers: a cycle that would keep their values alive.
            del incident

    def _recover_read(
        self, incident: Incident, ref: ObjectRef, open_store: Callable[[], Store], read: Callable[[], T]
    ) -> T:
        try:
            if not isinstance(incident.original_error, StoreUnavailable) and generations.same_value(open_store(), ref):
                return cast("T", open_store().get(ref.id, copy=incident.copy))  # it was reloaded before
            incident.event = self._classify_event(incident.original_error, ref, open_store)
        except ObjectLost as error:
            incident.original_error = error
        except StoreUnavailable as error:
            incident.event, incident.original_error = "daemon_lost", error
        try:
            return self._recover(incident, read)
        finally:
            del incident  # see read()

    def write(self, subject: Subject, open_store: Callable[[], Store], write: Callable[[], T]) -> T:
        """Write a value; if the store is full or unavailable, do what the policy says.

        Args:
            subject: the task that writes.
            open_store: the session that it writes to.
            write: the orchestrator's way to write; called again for each attempt.

        Raises:
            StoreFull, StoreUnavailable: what ``write`` raised, with what was tried, when the policy gives up.
            Also whatever else ``write`` raises.
        """
        try:
            return write()
        except (StoreFull, StoreUnavailable) as error:
            event = "store_full" if isinstance(error, StoreFull) else "daemon_lost"
            incident = Incident(event, subject, None, open_store, error)
        try:
            return self._recover(incident, write)
        finally:
            del incident  # see read()

    def _never_written(self, ref: ObjectRef) -> bool:
        store = self._open_session(ref.session)
        return lineage.read(store, ref) is None and self._restorer.survival(ref) == "gone"

    def _recover(self, incident: Incident, action: Callable[[], T]) -> T:
        try:
            return self._apply_rule(incident, action)
        except StopRecovery as stop:
            raise stop.error from stop.error.__cause__

    def _apply_rule(self, incident: Incident, action: Callable[[], T]) -> T:
        rule = self.rule(incident.event, incident.subject)
        started = time.monotonic()
        incident.log_event(self._log, incident.event, rule, text=str(incident.original_error))
        delay = rule.backoff
        for attempt in range(rule.max_attempts):
            if attempt:
                self._sleep(min(delay, rule.max_backoff))
                delay *= 2
            incident.retryable = incident.event in ("daemon_lost", "store_full")
            for step in rule.steps:
                if step.name == "fail":
                    raise incident.give_up(self._log, rule, step.reason)
                done, value = self._run_step(step, incident, rule, action)
                if done:
                    incident.log_event(self._log, "recovered", rule, seconds=time.monotonic() - started, text=step.name)
                    return cast("T", value)
            if not incident.retryable:
                break  # repeating the same would not help
        raise incident.give_up(self._log, rule, "")

    # --- steps

    def _run_step(
        self, step: Step, incident: Incident, rule: FailoverRule, action: Callable[[], Any]
    ) -> tuple[bool, Any]:
        """Run a step; returns whether it helped, and the value."""
        try:
            if step.name == "retry":
                return self._retry(step, incident, rule, action)
            helped = {
                "reload_checkpoint": self._reload,
                "reread_durable": self._reread,
                "rerun_upstream": self._rerun,
                "evict": self._evict,
            }[step.name](incident, rule)
            return (True, self._repeat_action(incident, action)) if helped else (False, None)
        except RerunNeeded:
            raise
        except EntrepotError as error:
            incident.retryable |= isinstance(error, (StoreUnavailable, StoreFull, Timeout))
            incident.record_outcome(step.name, error)
            return False, None

    def _repeat_action(self, incident: Incident, action: Callable[[], Any]) -> Any:
        try:
            return action()
        except RerunNeeded:
            raise
        except ObjectLost:
            # ``action`` insists on the reference's own generation; what was reloaded has another generation of the same
            # value.
            store = incident.open_store()
            if incident.ref is None or not generations.same_value(store, incident.ref):
                raise
            return store.get(incident.ref.id, copy=incident.copy)

    def _retry(self, step: Step, incident: Incident, rule: FailoverRule, action: Callable[[], Any]) -> tuple[bool, Any]:
        delay = step.delay
        for number in range(1, step.attempts + 1):
            self._sleep(min(delay, step.max_delay))
            delay *= step.factor
            try:
                return True, self._repeat_action(incident, action)
            except RerunNeeded:
                raise
            except (ObjectLost, ObjectNotFound, StoreFull, StoreUnavailable) as error:
                incident.record_outcome(f"retry {number}", error)
                incident.log_event(self._log, "retried", rule, text=f"{number} of {step.attempts}: {error}")
                if (
                    incident.event == "daemon_lost"
                    and incident.ref is not None
                    and not isinstance(error, StoreUnavailable)
                ):
                    # The daemon is back without the value: a different event, with a rule of its own.
                    event = self._classify_event(error, incident.ref, incident.open_store)
                    new_incident = Incident(
                        event, incident.subject, incident.ref, incident.open_store, error, incident.copy
                    )
                    return True, self._apply_rule(new_incident, action)
        return False, None

    def _reload(self, incident: Incident, rule: FailoverRule) -> bool:
        ref = incident.ref
        assert ref is not None
        damage_rule = self._policy.failover_rule("checkpoint_damaged", incident.subject)
        try_others = damage_rule is None or any(step.name == "reload_checkpoint" for step in damage_rule.steps)
        damaged_before = len(incident.damaged)
        if self._restorer.restore_from_checkpoint(ref, incident, rule, max_checkpoints=None if try_others else 1):
            return True
        if len(incident.damaged) == damaged_before or damage_rule is None:
            return False
        for step in damage_rule.steps:
            if step.name == "fail":
                raise incident.give_up(self._log, damage_rule, step.reason)
            if step.name == "rerun_upstream" and self._rerun(incident, damage_rule):
                return True
            if step.name == "reread_durable" and self._reread(incident, damage_rule):
                return True
        return False

    def _reread(self, incident: Incident, rule: FailoverRule) -> bool:
        ref = incident.ref
        assert ref is not None
        started = time.monotonic()
        store = incident.open_store()
        generation = (ref.instance, ref.generation) if ref.instance else None
        if store.durable is None or not store.recall(ref.id, life=generation):
            incident.record_outcome(
                "reread_durable", "no durable copy found" if store.durable else "the session is not durable"
            )
            return False
        if generation is not None:
            generations.record_restored(store, ref, [generation])
        incident.log_event(self._log, "reread", rule, seconds=time.monotonic() - started)
        return True

    def _rerun(self, incident: Incident, rule: FailoverRule) -> bool:
        ref = incident.ref
        assert ref is not None
        depth: int = getattr(self._rerun_state, "depth", 0)
        if depth >= MAX_RERUN_DEPTH:
            raise PlanningError(
                f"{ref}: reruns are nested {depth} deep: a task does not write what its lineage records"
            )
        try:
            plan = self._prepare_plan(incident, rule)
        except PlanningError as error:
            incident.record_outcome("rerun_upstream", error)
            return False
        if not self._may_rerun(incident, rule):
            return False
        incident.log_event(self._log, "rerun_planned", rule, text=str(plan))
        started = time.monotonic()
        self._rerun_state.depth = depth + 1
        try:
            with traced_rerun(incident.open_store, plan, rule.location.short):
                if self._rerunner is None:
                    raise RerunNeeded(plan, rule.location.short) from incident.original_error
                self._rerunner.rerun(plan)
        except EntrepotError:
            raise
        except Exception as error:
            raise incident.give_up(self._log, rule, f"a rerun task failed: {error}", error) from error
        finally:
            self._rerun_state.depth = depth
        incident.log_event(self._log, "rerun_done", rule, seconds=time.monotonic() - started, text=str(plan))
        store = incident.open_store()
        if ref.instance:
            # From now on the old reference means the task's own new value.
            generations.record_restored(store, ref, [(ref.instance, ref.generation)])
        return True

    def _may_rerun(self, incident: Incident, rule: FailoverRule) -> bool:
        ref = incident.ref
        assert ref is not None
        if earlier_reruns := record_rerun(
            self._open_session(ref.session), ref, rule.max_attempts, shared=self._shared_reruns
        ):
            incident.record_outcome(
                "rerun_upstream", f"it was recomputed {earlier_reruns} times within a day and lost again"
            )
        return not earlier_reruns

    def _prepare_plan(self, incident: Incident, rule: FailoverRule) -> Plan:
        """A plan whose reloads are done; what cannot be loaded counts as gone, and is planned for."""
        assert incident.ref is not None
        while True:
            plan = self.plan([incident.ref], rule.max_tasks, incident.damaged)
            damaged_before = len(incident.damaged)
            restored = [
                self._restorer.recall(ref) or self._restorer.restore_from_checkpoint(ref, incident, rule)
                for ref in plan.reloads
            ]
            if all(restored):
                return plan
            if len(incident.damaged) == damaged_before:  # each further round excludes more damage, so this ends
                raise PlanningError(f"inputs of {plan} are in checkpoints that currently cannot be loaded")

    def _evict(self, incident: Incident, rule: FailoverRule) -> bool:
        """Evict objects of this session, largest first, until the missing bytes may fit."""
        store = incident.open_store()
        candidates = [
            candidate
            for candidate in store.list()
            if candidate.state == "sealed" and not candidate.pins and candidate.nbytes
        ]
        candidates.sort(key=lambda candidate: candidate.nbytes, reverse=True)
        chosen = candidates[:MAX_EVICTED]
        if not chosen:
            incident.tried.append("evict: no object of this session can be evicted")
            return False
        try:
            store.evict(*(candidate.id for candidate in chosen))
        except InvalidArgument as error:  # no spill directory
            incident.tried.append(f"evict: {error}")
            return False
        incident.log_event(
            self._log,
            "evicted",
            rule,
            nbytes=sum(candidate.nbytes for candidate in chosen),
            text=count_of(len(chosen), "object"),
        )
        return True

    # --- planning

    def plan(self, lost: Sequence[ObjectRef], max_tasks: int, damaged: Collection[str] = ()) -> Plan:
        """Plan the reruns that restore objects; see :func:`~entrepot_policy.recovery.planning.plan_reruns`.

        Args:
            lost: the objects.
            max_tasks: limit on the tasks to rerun.
            damaged: URLs of checkpoints to ignore.
        """
        return plan_reruns(
            lost,
            self._graph,
            lambda ref: self._restorer.survival(ref, damaged),
            max_tasks=max_tasks,
            refusal=self.recompute_refusal,
        )

    def recompute_refusal(self, ref: ObjectRef) -> str:
        """Return the reason why a lost value may not be recomputed; empty: it may be."""
        event = "object_dropped" if self._is_dropped(ref) else "object_lost"
        return self.rerun_refusal(event, self._subject_of(ref))

    def rerun_refusal(self, event: str, subject: Subject) -> str:
        """Return the reason why an event may not cause a rerun of a task; empty: it may.

        Args:
            event: what happened to one of its outputs.
            subject: that output.
        """
        rule = self.rule(event, subject)
        if any(step.name == "rerun_upstream" for step in rule.steps):
            return ""
        reason = next((f" ({step.reason})" for step in rule.steps if step.reason), "")
        return f"its rule {rule.location.short} has no step rerun_upstream{reason}"

    def _is_dropped(self, ref: ObjectRef) -> bool:
        try:
            self._open_session(ref.session).info(ref.id)
        except ObjectDropped:
            return True
        except (ObjectLost, ObjectNotFound):
            return False
        return False

    # --- events

    def _classify_event(self, error: EntrepotError, ref: ObjectRef, open_store: Callable[[], Store]) -> str:
        if isinstance(error, StoreUnavailable):
            return "daemon_lost"
        if isinstance(error, ObjectDropped):
            return "object_dropped"
        if isinstance(error, CorruptData) or not ref.instance:
            return "object_lost"
        instance = open_store().instance_id
        if instance != ref.instance:
            self._statistics.record_loss(ref.instance)
            return "instance_lost"
        return "object_lost"
