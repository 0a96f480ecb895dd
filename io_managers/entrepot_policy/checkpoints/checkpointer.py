"""Checkpoints by policy: decides whether an output gets one, and writes it at once or in the background.

decided --sync--> written, added to the catalog, older ones pruned
   |
   `--async--> recorded as pending in the store --write-behind--> written, ... and the record removed
                        |
                        `-- queue full, process killed, timeout: left to ``finalize`` at the run's end, in any process
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from entrepot import raw_objects
from entrepot.errors import CorruptData, EntrepotError, ObjectNotFound, StoreUnavailable, Timeout
from entrepot.ids import ObjectID
from entrepot_checkpoints.write_behind import ATTEMPTS, WriteBehindQueue

from entrepot_policy.checkpoints.catalog import CatalogEntry, Catalogs
from entrepot_policy.checkpoints.decision import Decision
from entrepot_policy.rules.match_target import Subject, Task
from entrepot_policy.rules.model import CheckpointRule, Policy
from entrepot_policy.rules.targets import Target, encode_path_component
from entrepot_policy.state import lineage, records
from entrepot_policy.state.events import EventLog
from entrepot_policy.state.lineage import ObjectRef
from entrepot_policy.state.statistics import Statistics

if TYPE_CHECKING:
    from entrepot import Store
    from entrepot_checkpoints.storage.directory import UnsyncedFolders

PENDING = "entrepot.pending/"
SWEEP = "entrepot.sweep/"
COLLECTION_REFERENCE = "entrepot.collection_reference"
MAX_TAGS = 32
_NAME_BYTES = 60


@dataclass
class FinalizeReport:
    """Pending checkpoints that were handled at the end of a run.

    Attributes:
        written: how many are complete now.
        abandoned: keys of those that are not.
        swept: number of chunks of pruned checkpoints that were removed.
        problems: error descriptions.
    """

    written: int = 0
    abandoned: list[str] = field(default_factory=list[str])
    swept: int = 0
    problems: list[str] = field(default_factory=list[str])


@dataclass(frozen=True)
class _Job:
    rule: CheckpointRule
    subject: Subject
    ref: ObjectRef


class Checkpointer:
    """Checkpointing in one process. Thread-safe.

    Args:
        policy: makes the decisions.
        statistics: receives the speed of targets.
        log: receives events.
    """

    def __init__(self, policy: Policy, statistics: Statistics, log: EventLog) -> None:
        self._policy = policy
        self._statistics = statistics
        self._log = log
        self.catalogs = Catalogs(policy.all_targets())
        self._lock = threading.Lock()
        self._jobs: dict[ObjectID, _Job] = {}  # guarded by _lock, as are the following
        self._attempts: dict[ObjectID, int] = {}
        self._write_behind = WriteBehindQueue(
            self._save_in_background, "the targets of the policy", exit_seconds=policy.wait_seconds
        )
        os.register_at_fork(after_in_child=self._after_fork_in_child)

    def _after_fork_in_child(self) -> None:
        # Pending writes are the parent's; another of its threads may have held the lock.
        self._lock = threading.Lock()
        self._jobs = {}
        self._attempts = {}
        self.catalogs.reset()

    # --- writing

    def write(self, store: Store, decision: Decision, subject: Subject, ref: ObjectRef) -> None:
        """Carry out the decision about an output that was just written.

        Args:
            store: the session of the output.
            decision: of :func:`~entrepot_policy.checkpoints.decision.decide`.
            subject: the output.
            ref: the output, in the generation just written; its lineage is already stored.

        Raises:
            Whatever saving raises, for a sync checkpoint whose policy says ``on_error: fail``.
        """
        rule = decision.rule
        if not decision.write or rule is None:
            if rule is not None:
                self._log_event("checkpoint_skipped", subject, ref, rule, text=decision.reason)
            return
        job = _Job(rule, subject, ref)
        try:
            if rule.mode == "async":
                self._enqueue(store, job)
            else:
                self._save(store, job, decision.reason)
        except EntrepotError as error:
            self._log_event("checkpoint_failed", subject, ref, rule, text=str(error))
            if self._policy.fail_on_error and rule.mode == "sync":
                raise type(error)(
                    f"the checkpoint required by {rule.location.short} failed, and the policy sets 'on_error: fail': "
                    f"{error}"
                ) from error

    def _enqueue(self, store: Store, job: _Job) -> None:
        # Recorded first: from here on any process can write it, even if this one is killed.
        records.put(store, PENDING + str(job.ref.id), _encode_pending(job), name=PENDING + str(job.ref.id))
        with self._lock:
            full = len(self._jobs) >= self._policy.queue and job.ref.id not in self._jobs
            if not full:
                self._jobs[job.ref.id] = job
        if full:
            self._log_event(
                "checkpoint_skipped",
                job.subject,
                job.ref,
                job.rule,
                text=f"{self._policy.queue} checkpoints are already pending (queue); deferred to the end of the run",
            )
            return
        self._write_behind.add(store, job.ref.id)

    def _save_in_background(self, store: Store, oid: ObjectID) -> None:
        with self._lock:
            job = self._jobs.get(oid)
        if job is None:
            return  # abandoned
        try:
            self._save(store, job, "async")
            records.remove(store, PENDING + str(oid))
        except StoreUnavailable as error:
            with self._lock:
                self._attempts[oid] = self._attempts.get(oid, 0) + 1
                if self._attempts[oid] < ATTEMPTS:
                    raise  # retried after a pause
            text = f"{error}. It stays pending until the end of the run"
            self._log_event("checkpoint_failed", job.subject, job.ref, job.rule, text=text)
        except ObjectNotFound:
            self._log_event("checkpoint_skipped", job.subject, job.ref, job.rule, text="deleted before it was written")
            records.remove(store, PENDING + str(oid))
        except EntrepotError as error:
            self._log_event("checkpoint_failed", job.subject, job.ref, job.rule, text=str(error))
        with self._lock:
            self._attempts.pop(oid, None)
            if self._jobs.get(oid) is job:
                del self._jobs[oid]

    def _save(self, store: Store, job: _Job, reason: str) -> bool:
        """Write a checkpoint to the first target that accepts it; False: the value was replaced meanwhile."""
        failure: EntrepotError | None = None
        for target in job.rule.targets:
            try:
                saved = self._save_to(store, job, target, reason)
            except (ObjectNotFound, CorruptData):
                raise  # a problem of the object itself, which another target does not fix
            except EntrepotError as error:
                failure = error
                self._log_event(
                    "checkpoint_failed", job.subject, job.ref, job.rule, text=f"target {target.name!r}: {error}"
                )
            else:
                failure = None  # its traceback refers to this frame: a cycle that would keep values alive
                return saved
        assert failure is not None, "a rule that writes has a target"
        try:
            raise failure
        finally:
            failure = None

    def _save_to(self, store: Store, job: _Job, target: Target, reason: str) -> bool:
        from entrepot_checkpoints.retention import remove_checkpoint
        from entrepot_checkpoints.storage.directory import open_directory
        from entrepot_checkpoints.writer import save

        ref, task = job.ref, job.subject.task
        if raw_objects.generation_of(store, ref.id) not in (None, ref.generation):
            return False  # rewritten by a later attempt, which takes care of its own checkpoint
        catalog = self.catalogs.for_target(target)
        root = target.root(task=task, scope=store.scope, session=store.session_name)
        url = f"{root}/{_checkpoint_name(ref)}"
        started = time.monotonic()
        object_ids = [*_value_ids(store, ref.id), *lineage.page_ids(store, ref)]
        unsynced: UnsyncedFolders = {}
        report = save(store, object_ids, url, storage_options=target.options, unsynced=unsynced)
        if raw_objects.generation_of(store, ref.id) not in (None, ref.generation):
            storage, name = open_directory(url, target.options).split()
            remove_checkpoint(storage, name)
            return False
        entry = CatalogEntry(url, store.scope, ref, task, report.nbytes, time.time(), job.rule.location.short)
        catalog.add(entry, counts_toward_keep=job.rule.keep is not None, unsynced=unsynced)
        seconds = time.monotonic() - started
        text = f"{url} ({reason})"
        self._log_event(
            "checkpoint_written", job.subject, ref, job.rule, seconds=seconds, nbytes=report.nbytes, text=text
        )
        self._statistics.record_checkpoint_write(target.template, report.written_bytes, seconds)
        if job.rule.keep is not None and (pruned_urls := catalog.prune(entry, job.rule.keep)):
            self._log_event("checkpoint_pruned", job.subject, ref, job.rule, text=", ".join(pruned_urls))
            for pruned_root in dict.fromkeys(pruned_url.rpartition("/")[0] for pruned_url in pruned_urls):
                # In the store, because another process may finish the run.
                name = SWEEP + hashlib.sha256(pruned_root.encode()).hexdigest()[:32]
                with suppress(EntrepotError):  # store full: 'entrepot checkpoints prune' removes them as well
                    records.put(store, name, {"root": pruned_root, "target": target.template}, name=name)
        return True

    def flush(self, wait_seconds: float | None = None) -> bool:
        """Wait for this process's own pending writes; for orchestrators that kill processes without a normal exit.

        Args:
            wait_seconds: timeout; None: as the policy says.

        Returns:
            Whether everything is written; the rest stays pending until the run's end.
        """
        try:
            self._write_behind.flush(self._policy.wait_seconds if wait_seconds is None else wait_seconds)
        except EntrepotError:
            return False  # already in the event log; the record in the store stays
        return True

    # --- end of a run

    def finalize(self, store: Store, wait_seconds: float | None = None) -> FinalizeReport:
        """Write, or safely abandon, the pending checkpoints of a session.

        Call it when the run is over, in any process; checkpoints left pending by other processes are written too.

        Args:
            store: the session.
            wait_seconds: timeout; None: as the policy says.

        Raises:
            StoreUnavailable: the store cannot be reached.
        """
        deadline = time.monotonic() + (self._policy.wait_seconds if wait_seconds is None else wait_seconds)
        report = FinalizeReport()
        try:
            self._write_behind.flush(max(0.0, deadline - time.monotonic()))
        except Timeout:
            for oid in self._write_behind.cancel_pending():
                with self._lock:
                    self._jobs.pop(oid, None)
        except EntrepotError as error:
            report.problems.append(str(error))
        else:
            with self._lock:
                self._jobs.clear()
        for name in _names_with_prefix(store, PENDING):
            job = self._load_job(store, name)
            if job is None:
                continue
            if time.monotonic() >= deadline:
                report.abandoned.append(job.ref.key or str(job.ref.id))
                self._log_event(
                    "checkpoint_abandoned", job.subject, job.ref, job.rule, text="timed out before it was saved"
                )
                continue
            try:
                report.written += self._save(store, job, "at the end of the run")
                records.remove(store, name)
            except ObjectNotFound:
                records.remove(store, name)
            except EntrepotError as error:
                report.abandoned.append(job.ref.key or str(job.ref.id))
                report.problems.append(str(error))
        report.swept = self._sweep(store, deadline, report)
        return report

    def _load_job(self, store: Store, name: str) -> _Job | None:
        record = records.get(store, name)
        if record is None:
            return None  # written meanwhile
        subject, ref = _decode_pending(record)
        rule = self._policy.checkpoint_rule(subject)
        if rule is None or not rule.targets:
            records.remove(store, name)  # the current policy has no rule for it
            return None
        return _Job(rule, subject, ref)

    def _sweep(self, store: Store, deadline: float, report: FinalizeReport) -> int:
        """Remove unreferenced chunks under roots where something was pruned."""
        from entrepot_checkpoints.retention import prune

        chunks = 0
        for name in _names_with_prefix(store, SWEEP):
            if time.monotonic() >= deadline:
                break  # the record stays
            record = records.get(store, name) or {}
            root, template = str(record.get("root", "")), record.get("target")
            target = next(
                (candidate for candidate in self._policy.all_targets() if candidate.template == template), None
            )
            try:
                if target is not None and root:
                    chunks += prune(root, storage_options=target.options).chunks
            except EntrepotError as error:
                report.problems.append(f"chunks under {root} were not removed: {error}")
            records.remove(store, name)
        return chunks

    def _log_event(self, kind: str, subject: Subject, ref: ObjectRef, rule: CheckpointRule, **fields: Any) -> None:
        self._log.add(kind, of=subject.task, object=str(ref.id), key=ref.key, rule=rule.location.short, **fields)


def recompute_seconds(
    store: Store, own_seconds: float, inputs: tuple[ObjectRef, ...], *, max_objects: int = 256
) -> float:
    """Seconds to recompute a value: its task, and the preceding tasks whose outputs are in no checkpoint.

    Args:
        store: any session of the scope.
        own_seconds: duration of its own task.
        inputs: what that task reads.
        max_objects: limit on the objects visited.
    """
    tasks: dict[Task, float] = {}
    seen: set[ObjectID] = set()
    pending = list(inputs)
    while pending and len(seen) < max_objects:
        ref = pending.pop()
        if ref.id in seen:
            continue
        seen.add(ref.id)
        ancestor = lineage.read(store, ref)
        if ancestor is None or ancestor.checkpointed:
            continue
        tasks[ancestor.task] = max(ancestor.seconds, tasks.get(ancestor.task, 0.0))
        pending.extend(ancestor.inputs)
    return own_seconds + sum(tasks.values())


def _names_with_prefix(store: Store, prefix: str) -> list[str]:
    return [name for entry in store.list(f"{prefix}*") for name in entry.names if name.startswith(prefix)]


def _value_ids(store: Store, oid: ObjectID) -> list[ObjectID]:
    """The objects that make up a value; for a reference to a collection, that includes the collection itself."""
    from entrepot import Collection

    if raw_objects.read(store, oid).type != COLLECTION_REFERENCE:
        return [oid]
    value = store.get(oid)
    return [oid, value.id] if isinstance(value, Collection) else [oid]


def _checkpoint_name(ref: ObjectRef) -> str:
    from entrepot_io.keys import shorten

    readable = (
        shorten(encode_path_component(ref.key).replace("%", "_").replace("~", "_"), _NAME_BYTES)
        if ref.key
        else "object"
    )
    return f"{readable.replace(':', '_')}-{ref.id}-{ref.generation}"


def _encode_pending(job: _Job) -> dict[str, Any]:
    subject, ref, task = job.subject, job.ref, job.subject.task
    return {
        "ref": [ref.session, str(ref.id), ref.key[:512], ref.instance, ref.generation],
        "task": [task.orchestrator, task.pipeline, task.run, task.name],
        "asset": subject.asset,
        "dataset": subject.dataset,
        "tags": sorted(subject.tags)[:MAX_TAGS],
        "type": subject.type,
        "nbytes": subject.nbytes,
        "fan_out": subject.fan_out,
    }


def _decode_pending(record: dict[str, Any]) -> tuple[Subject, ObjectRef]:
    try:
        session, oid, key, instance, generation = record["ref"]
        ref = ObjectRef(str(session), ObjectID(oid), str(key), str(instance), int(generation))
        orchestrator, pipeline, run, name = record["task"]
        subject = Subject(
            Task(str(orchestrator), str(pipeline), str(run), str(name)),
            key=ref.key,
            asset=str(record["asset"]),
            dataset=str(record["dataset"]),
            tags=frozenset(map(str, record["tags"])),
            type=str(record["type"]),
            nbytes=record["nbytes"],
            fan_out=record["fan_out"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptData(f"a pending checkpoint cannot be read: {error}") from error
    return subject, ref
