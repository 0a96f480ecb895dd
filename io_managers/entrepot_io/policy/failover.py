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

from entrepot_io.policy import lineage, lives
from entrepot_io.policy.events import EventLog
from entrepot_io.policy.lineage import ObjectRef
from entrepot_io.policy.model import FailoverRule, Policy, Step
from entrepot_io.policy.planning import Graph, NoPlan, Plan, RerunNeeded, plan_reruns
from entrepot_io.policy.rerunning import Rerunner, made_again
from entrepot_io.policy.restoring import Restorer
from entrepot_io.policy.statistics import Statistics
from entrepot_io.policy.subject import Subject
from entrepot_io.policy.trouble import DEFAULT_RULES, Final, Trouble

if TYPE_CHECKING:
    from entrepot import Store

T = TypeVar("T")
MAX_EVICTED = 64
MAX_DEPTH = 8  # of nested reruns


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
        self._reruns = threading.local()  # .depth: nesting depth of this thread's reruns

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
            trouble = Trouble("object_lost", subject or self._subject_of(ref), ref, open_store, error, copy)
        try:
            return self._lost(trouble, ref, open_store, read)
        finally:
            # Its error refers to this frame and its callers: a cycle that would keep their values alive.
            del trouble

    def _lost(self, trouble: Trouble, ref: ObjectRef, open_store: Callable[[], Store], read: Callable[[], T]) -> T:
        try:
            if not isinstance(trouble.first, StoreUnavailable) and lives.same_value(open_store(), ref):
                return cast("T", open_store().get(ref.id, copy=trouble.copy))  # it was reloaded before
            trouble.event = self._event_of(trouble.first, ref, open_store)
        except ObjectLost as error:
            trouble.first = error
        except StoreUnavailable as error:
            trouble.event, trouble.first = "daemon_lost", error
        try:
            return self._handled(trouble, read)
        finally:
            del trouble  # see read()

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
            trouble = Trouble(event, subject, None, open_store, error)
        try:
            return self._handled(trouble, write)
        finally:
            del trouble  # see read()

    def _never_written(self, ref: ObjectRef) -> bool:
        store = self._open_session(ref.session)
        return lineage.read(store, ref) is None and self._restorer.survival(ref) == "gone"

    def _handled(self, trouble: Trouble, action: Callable[[], T]) -> T:
        try:
            return self._through(trouble, action)
        except Final as final:
            raise final.error from final.error.__cause__

    def _through(self, trouble: Trouble, action: Callable[[], T]) -> T:
        rule = self.rule(trouble.event, trouble.subject)
        begun = time.monotonic()
        trouble.tell(self._log, trouble.event, rule, text=str(trouble.first))
        delay = rule.backoff
        for attempt in range(rule.max_attempts):
            if attempt:
                self._sleep(min(delay, rule.max_backoff))
                delay *= 2
            trouble.may_pass = trouble.event in ("daemon_lost", "store_full")
            for step in rule.steps:
                if step.name == "fail":
                    raise trouble.given_up(self._log, rule, step.reason)
                done, value = self._step(step, trouble, rule, action)
                if done:
                    trouble.tell(self._log, "recovered", rule, seconds=time.monotonic() - begun, text=step.name)
                    return cast("T", value)
            if not trouble.may_pass:
                break  # repeating the same would not help
        raise trouble.given_up(self._log, rule, "")

    # --- steps

    def _step(self, step: Step, trouble: Trouble, rule: FailoverRule, action: Callable[[], Any]) -> tuple[bool, Any]:
        """Run a step; returns whether it helped, and the value."""
        try:
            if step.name == "retry":
                return self._retry(step, trouble, rule, action)
            helped = {
                "reload_checkpoint": self._reload,
                "reread_durable": self._reread,
                "rerun_upstream": self._rerun,
                "evict": self._evict,
            }[step.name](trouble, rule)
            return (True, self._again(trouble, action)) if helped else (False, None)
        except RerunNeeded:
            raise
        except EntrepotError as error:
            trouble.may_pass |= isinstance(error, (StoreUnavailable, StoreFull, Timeout))
            trouble.note(step.name, error)
            return False, None

    def _again(self, trouble: Trouble, action: Callable[[], Any]) -> Any:
        try:
            return action()
        except RerunNeeded:
            raise
        except ObjectLost:
            # ``action`` insists on the reference's own generation; what was reloaded has another generation of the same
            # value.
            store = trouble.open_store()
            if trouble.ref is None or not lives.same_value(store, trouble.ref):
                raise
            return store.get(trouble.ref.id, copy=trouble.copy)

    def _retry(self, step: Step, trouble: Trouble, rule: FailoverRule, action: Callable[[], Any]) -> tuple[bool, Any]:
        delay = step.delay
        for number in range(1, step.attempts + 1):
            self._sleep(min(delay, step.max_delay))
            delay *= step.factor
            try:
                return True, self._again(trouble, action)
            except RerunNeeded:
                raise
            except (ObjectLost, ObjectNotFound, StoreFull, StoreUnavailable) as error:
                trouble.note(f"retry {number}", error)
                trouble.tell(self._log, "retried", rule, text=f"{number} of {step.attempts}: {error}")
                if (
                    trouble.event == "daemon_lost"
                    and trouble.ref is not None
                    and not isinstance(error, StoreUnavailable)
                ):
                    # The daemon is back without the value: a different event, with a rule of its own.
                    event = self._event_of(error, trouble.ref, trouble.open_store)
                    after = Trouble(event, trouble.subject, trouble.ref, trouble.open_store, error, trouble.copy)
                    return True, self._through(after, action)
        return False, None

    def _reload(self, trouble: Trouble, rule: FailoverRule) -> bool:
        ref = trouble.ref
        assert ref is not None
        on_damage = self._policy.failover_rule("checkpoint_damaged", trouble.subject)
        others = on_damage is None or any(step.name == "reload_checkpoint" for step in on_damage.steps)
        before = len(trouble.damaged)
        if self._restorer.bring_back(ref, trouble, rule, most=None if others else 1):
            return True
        if len(trouble.damaged) == before or on_damage is None:
            return False
        for step in on_damage.steps:
            if step.name == "fail":
                raise trouble.given_up(self._log, on_damage, step.reason)
            if step.name == "rerun_upstream" and self._rerun(trouble, on_damage):
                return True
            if step.name == "reread_durable" and self._reread(trouble, on_damage):
                return True
        return False

    def _reread(self, trouble: Trouble, rule: FailoverRule) -> bool:
        ref = trouble.ref
        assert ref is not None
        begun = time.monotonic()
        store = trouble.open_store()
        life = (ref.instance, ref.generation) if ref.instance else None
        if store.durable is None or not store.recall(ref.id, life=life):
            trouble.note("reread_durable", "it is not there" if store.durable else "the session is not durable")
            return False
        if life is not None:
            lives.reloaded(store, ref, [life])
        trouble.tell(self._log, "reread", rule, seconds=time.monotonic() - begun)
        return True

    def _rerun(self, trouble: Trouble, rule: FailoverRule) -> bool:
        ref = trouble.ref
        assert ref is not None
        depth: int = getattr(self._reruns, "depth", 0)
        if depth >= MAX_DEPTH:
            raise NoPlan(f"{ref}: reruns within reruns, {depth} deep: a task does not write what its lineage says")
        try:
            plan = self._prepared(trouble, rule)
        except NoPlan as error:
            trouble.note("rerun_upstream", error)
            return False
        if not self._may_rerun(trouble, rule):
            return False
        trouble.tell(self._log, "rerun_planned", rule, text=str(plan))
        if self._rerunner is None:
            raise RerunNeeded(plan, rule.mark.short) from trouble.first
        begun = time.monotonic()
        self._reruns.depth = depth + 1
        try:
            self._rerunner.rerun(plan)
        except EntrepotError:
            raise
        except Exception as error:
            raise trouble.given_up(self._log, rule, f"a task that was run again failed: {error}", error) from error
        finally:
            self._reruns.depth = depth
        trouble.tell(self._log, "rerun_done", rule, seconds=time.monotonic() - begun, text=str(plan))
        store = trouble.open_store()
        if ref.instance:
            # From now on the old reference means the task's own new value.
            lives.reloaded(store, ref, [(ref.instance, ref.generation)])
        return True

    def _may_rerun(self, trouble: Trouble, rule: FailoverRule) -> bool:
        ref = trouble.ref
        assert ref is not None
        if again := made_again(self._open_session(ref.session), ref, rule.max_attempts, shared=self._shared_reruns):
            trouble.note("rerun_upstream", f"it was made again {again} times within a day, and lost again")
        return not again

    def _prepared(self, trouble: Trouble, rule: FailoverRule) -> Plan:
        """A plan whose reloads are done; what cannot be loaded counts as gone, and is planned for."""
        assert trouble.ref is not None
        while True:
            plan = self.plan([trouble.ref], rule.max_tasks, trouble.damaged)
            before = len(trouble.damaged)
            whole = [
                self._restorer.recall(one) or self._restorer.bring_back(one, trouble, rule) for one in plan.reloads
            ]
            if all(whole):
                return plan
            if len(trouble.damaged) == before:  # each further round excludes more damage, so this ends
                raise NoPlan(f"inputs of {plan} are in checkpoints that cannot be loaded now")

    def _evict(self, trouble: Trouble, rule: FailoverRule) -> bool:
        """Evict objects of this session, largest first, until the missing bytes may fit."""
        store = trouble.open_store()
        found = [one for one in store.list() if one.state == "sealed" and not one.pins and one.nbytes]
        found.sort(key=lambda one: one.nbytes, reverse=True)
        chosen = found[:MAX_EVICTED]
        if not chosen:
            trouble.tried.append("evict: nothing of this session can leave memory")
            return False
        try:
            store.evict(*(one.id for one in chosen))
        except InvalidArgument as error:  # no spill directory
            trouble.tried.append(f"evict: {error}")
            return False
        trouble.tell(
            self._log, "evicted", rule, nbytes=sum(one.nbytes for one in chosen), text=f"{len(chosen)} objects"
        )
        return True

    # --- planning

    def plan(self, lost: Sequence[ObjectRef], max_tasks: int, damaged: Collection[str] = ()) -> Plan:
        """Plan the reruns that restore objects; see :func:`~entrepot_io.policy.planning.plan_reruns`.

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
            forbidden=self.forbidden,
        )

    def forbidden(self, ref: ObjectRef) -> str:
        """Why a lost value is not recomputed: its rule has no rerun_upstream; empty: it may be."""
        event = "object_dropped" if self._is_dropped(ref) else "object_lost"
        return self.forbids(event, self._subject_of(ref))

    def forbids(self, event: str, subject: Subject) -> str:
        """Why an event may not cause a rerun of a task; empty: it may.

        Args:
            event: what happened to one of its outputs.
            subject: that output.
        """
        rule = self.rule(event, subject)
        if any(step.name == "rerun_upstream" for step in rule.steps):
            return ""
        reason = next((f" ({step.reason})" for step in rule.steps if step.reason), "")
        return f"the rule for it, {rule.mark.short}, has no rerun_upstream{reason}"

    def _is_dropped(self, ref: ObjectRef) -> bool:
        try:
            self._open_session(ref.session).info(ref.id)
        except ObjectDropped:
            return True
        except (ObjectLost, ObjectNotFound):
            return False
        return False

    # --- events

    def _event_of(self, error: EntrepotError, ref: ObjectRef, open_store: Callable[[], Store]) -> str:
        if isinstance(error, StoreUnavailable):
            return "daemon_lost"
        if isinstance(error, ObjectDropped):
            return "object_dropped"
        if isinstance(error, CorruptData) or not ref.instance:
            return "object_lost"
        instance = open_store().instance_id
        if instance != ref.instance:
            self._statistics.lost(ref.instance)
            return "instance_lost"
        return "object_lost"
