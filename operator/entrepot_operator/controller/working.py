"""The leader's work on one key at a time: observe, decide with the pure functions, write."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from entrepot.errors import AccessDenied, EntrepotError, InvalidArgument
from entrepot_io.cluster.api import Api
from entrepot_io.cluster.errors import ClusterRefused
from entrepot_io.cluster.objects import API_VERSION

from entrepot_operator.controller import children, gates, labels, status
from entrepot_operator.controller.drawing import drawing
from entrepot_operator.controller.gates import Told
from entrepot_operator.controller.knowledge import (
    ACCOUNT,
    GATE,
    LABEL,
    STATUS,
    STORE,
    SWEEP,
    Key,
    Knowledge,
    Known,
)
from entrepot_operator.controller.lines import facts
from entrepot_operator.controller.metrics import Metrics
from entrepot_operator.controller.queue import WorkQueue
from entrepot_operator.controller.settings import Settings
from entrepot_operator.controller.status import Failure, Observed
from entrepot_operator.controller.writing import Writer
from entrepot_operator.publishing.expiry import sweep
from entrepot_operator.stores import StoreSpec, parse_store

log = logging.getLogger(__name__)

FULL_SWEEP_SECONDS = 600.0


class Work:
    """The leader's work, for one thread.

    Args:
        settings: of the operator.
        known: its view of the cluster.
        queue: for keys to process again.
        api: an exclusive connection.
        now: current time by the API server's clock.
        metrics: receives counts.
    """

    def __init__(
        self,
        settings: Settings,
        known: Knowledge,
        queue: WorkQueue[Key],
        api: Api,
        now: Callable[[], datetime],
        metrics: Metrics,
    ) -> None:
        self._settings = settings
        self._known = known
        self._queue = queue
        self._api = api
        self._now = now
        self._metrics = metrics
        self._writer = Writer(api, settings.identity, settings.manager_of_labels)
        self._failures: dict[str, tuple[Failure, ...]] = {}
        self._told: dict[str, dict[str, Any]] = {}  # the last status written, by the UID of its Store
        self._swept: datetime | None = None
        self._unsure: set[str] = set()  # held pods already told that locations are currently unknown
        self._does: dict[str, Callable[[str], None]] = {
            STORE: self._store,
            STATUS: self._status,
            LABEL: self._label,
            GATE: self._gate,
            ACCOUNT: self._account,
            SWEEP: self._sweep,
        }

    def begin(self) -> None:
        """Drop the state of an earlier term as leader: others may have written since."""
        self._failures.clear()
        self._told.clear()
        self._unsure.clear()
        self._swept = None

    def do(self, key: Key) -> None:
        """Process one key, and write whatever must change.

        Raises:
            EntrepotError: it must be retried.
        """
        self._does[key[0]](key[1])

    def close(self) -> None:
        """Close the connection."""
        self._api.close()

    def _store(self, name: str) -> None:
        resource = self._resource(name)
        if resource is None:
            self._failures.pop(name, None)
            return
        failures: list[Failure] = []
        again: EntrepotError | None = None
        try:
            spec = parse_store(resource)
            self._writer.apply(children.daemonset(resource, spec))
            conflict = status.conflicts(name, spec, self._older(resource), self._known.index.nodes())
            failures += [conflict] if conflict is not None else []
        except InvalidArgument as error:
            failures.append(Failure("Invalid", str(error)))
        except AccessDenied as error:
            failures.append(Failure("Forbidden", str(error)))
            again = error
        except ClusterRefused as error:
            failures.append(Failure("Refused", str(error)))
            again = error
        self._failures[name] = tuple(failures)
        for one in failures:
            self._say(_about(resource), Told("Warning", one.reason, one.message, one.message))
        self._status(name)
        if again is not None:
            raise again

    def _status(self, name: str) -> None:
        resource = self._resource(name)
        if resource is None:
            return
        pods = [one for one in self._known.pods.all().values() if one.store == name]
        uid, there = str(resource["metadata"]["uid"]), resource.get("status") or {}
        before = self._told.get(uid, there).get("conditions") or []
        try:
            spec = parse_store(resource)
        except InvalidArgument:
            spec = None
        seen = Observed(
            generation=int(resource["metadata"].get("generation") or 0),
            spec=spec,
            daemonset=self._known.daemonsets.get(f"{self._settings.namespace}/{children.daemonset_name(name)}"),
            pods=pods,
            heard=self._known.heard(name, pods),
            published=self._known.published(name, pods),
            failures=(*self._failures.get(name, ()), *self._known.problems()),
            before=before,
        )
        wanted = status.status_of(seen, self._now())
        if wanted != there and self._writer.status(self._settings.namespace, name, wanted):
            self._told[uid] = wanted

    def _account(self, _: str) -> None:
        publishing: list[Mapping[str, Any]] = []
        for one in self._known.stores.all().values():
            spec = _spec(one)
            if not one["metadata"].get("deletionTimestamp") and (spec is None or spec.publish.enabled):
                publishing.append(one)
        for child in children.account(self._settings.namespace, publishing):
            self._writer.apply(child)

    def _label(self, node: str) -> None:
        if not self._known.synced:
            self._queue.add((LABEL, node), 1.0)
            return
        seen = self._known.nodes.get(node)
        if seen is None:
            return
        ready = {node} if self._is_ready(node) else set[str]()
        for change in labels.changes([seen], ready):
            if not change.labelled and (rest := self._held_back(node)) > 0:
                self._queue.add((LABEL, node), rest)
                continue
            if self._writer.label(change):
                self._metrics.count("entrepot_operator_labels_total", to="ready" if change.labelled else "none")
                text = "has a store" if change.labelled else "has no store that can be used any more"
                log.info("node %s %s", node, text, extra=facts(node=node))

    def _is_ready(self, node: str) -> bool:
        stores = self._known.stores.all()
        for one in self._known.pods_on(node):
            resource = stores.get(f"{self._settings.namespace}/{one.store}")
            if resource is None or resource["metadata"].get("deletionTimestamp"):
                continue
            if node in status.ready_nodes(_spec(resource), [one], self._known.heard(one.store, [one])):
                return True
        return False

    def _held_back(self, node: str) -> float:
        """Seconds for which a label stays although the lease expired: after an outage of the API, publishers renew
        first.
        """
        if not any(one.ready for one in self._known.pods_on(node)):
            return 0.0
        return self._settings.hold_seconds - self._known.watchers["leases"].connected_for()

    def _gate(self, key: str) -> None:
        pod = self._known.gated.get(key)
        if pod is None:
            self._unsure.discard(key)
            return
        now = self._now()
        about = {"apiVersion": "v1", "kind": "Pod", "namespace": pod.namespace, "name": pod.name, "uid": pod.uid}
        if not self._known.followed() and not pod.problem and now < pod.until:
            problems = "; ".join(one.message for one in self._known.problems())
            if problems and key not in self._unsure:
                self._unsure.add(key)
                self._say(about, Told("Warning", "ObjectsNotKnown", f"where objects are is not known: {problems}"))
            self._queue.add((GATE, key), 1.0)
            return
        self._unsure.discard(key)
        decision = gates.decide(pod, self._known.index.locations(pod.ids), now)
        became = ""
        if decision.lift:
            became = self._writer.lift(pod, lambda found: drawing(found, Known(self._known), self._settings.site))
            if became == "gone":
                return
        for told in decision.told:
            self._say(about, told)
        if decision.lift:
            reason = decision.told[0].reason
            self._metrics.count("entrepot_operator_gates_lifted_total", reason=reason)
            text = decision.told[0].message
            log.info("pod %s goes, %s: %s", key, became, text, extra=facts(pod=key, reason=reason, affinity=became))
        else:
            self._queue.add((GATE, key), decision.again)

    def _sweep(self, _: str) -> None:
        self._queue.add((SWEEP, ""), self._settings.sweep_seconds)
        now = self._now()
        held = self._known.watchers["leases"].connected_for() < self._settings.hold_seconds
        full = self._swept is None or (now - self._swept).total_seconds() > FULL_SWEEP_SECONDS
        if not self._known.synced or held or not (full or not all(self._known.index.leases().values())):
            return
        done = sweep(self._api, self._settings.namespace, grace=self._settings.grace_seconds)
        self._swept = now
        self._metrics.count("entrepot_operator_sweeps_total")
        if done.mark or done.leases or done.orphans:
            log.info(
                "lost nodes: %d objects marked, %d leases and %d objects without one removed",
                len(done.mark),
                len(done.leases),
                len(done.orphans),
            )

    def _resource(self, name: str) -> dict[str, Any] | None:
        found = self._known.stores.get(f"{self._settings.namespace}/{name}")
        return None if found is None or found["metadata"].get("deletionTimestamp") else found

    def _older(self, resource: Mapping[str, Any]) -> dict[str, StoreSpec]:
        found: dict[str, StoreSpec] = {}
        for one in self._known.stores.all().values():
            spec = _spec(one)
            if spec is not None and _age(one) < _age(resource) and not one["metadata"].get("deletionTimestamp"):
                found[str(one["metadata"]["name"])] = spec
        return found

    def _say(self, about: Mapping[str, Any], told: Told) -> None:
        try:
            self._writer.event(about, told)
        except EntrepotError as error:
            # The action itself is done; the log says what the event would have said.
            log.warning(
                "%s %s: %s: %s (no event of it: %s)", about["kind"], about["name"], told.reason, told.message, error
            )


def _about(resource: Mapping[str, Any]) -> dict[str, Any]:
    metadata = resource["metadata"]
    return {"apiVersion": API_VERSION, "kind": "Store", **{key: metadata[key] for key in ("namespace", "name", "uid")}}


def _spec(resource: Mapping[str, Any]) -> StoreSpec | None:
    try:
        return parse_store(resource)
    except InvalidArgument:
        return None


def _age(resource: Mapping[str, Any]) -> tuple[str, str]:
    return str(resource["metadata"].get("creationTimestamp") or ""), str(resource["metadata"]["name"])
