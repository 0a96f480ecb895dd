"""Placement of pods created by an orchestrator: their inputs, where these are now, and the resulting pod.

What is unknown is logged, and the pod is created without it: a task never waits for its placement, and never fails
because of it, unless an annotation written by the pod's author is invalid.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from entrepot.errors import EntrepotError

from entrepot_io.describe import human_bytes
from entrepot_io.placement import wishes
from entrepot_io.placement.injecting import Injection, explain
from entrepot_io.placement.locating import Merged, Places
from entrepot_io.placement.names import LOCALITY, Site
from entrepot_io.placement.site_options import site_of
from entrepot_io.placement.sources import Source, open_source
from entrepot_io.reference import Reference

log = logging.getLogger(__name__)
_TOLD = 3  # nodes in one log line


@dataclass(frozen=True)
class Setup:
    """A deployment's placement settings.

    Attributes:
        locations: the source of locations, as for :func:`~entrepot_io.placement.sources.open_source`.
        site: configuration of its stores.
    """

    locations: str
    site: Site


def setup(
    configured: Callable[[str], str | None] | None = None,
    *,
    given: Mapping[str, Any] | None = None,
    default: str | None = None,
) -> Setup | None:
    """Resolve a deployment's settings: arguments, then ``ENTREPOT_*``, then the orchestrator's configuration.

    Args:
        configured: looks up ``locations``, ``socket_folder`` and ``shared_memory`` in the orchestrator's configuration.
        given: some of them as the user's arguments.
        default: source of locations if none is configured.

    Returns:
        None: there is no source of locations, and pods are left alone.

    Raises:
        InvalidArgument: a setting is out of range.
    """

    def find(name: str) -> str | None:
        said = (given or {}).get(name) or os.environ.get(f"ENTREPOT_{name.upper()}")
        return str(said) if said else (configured(name) if configured else None) or None

    locations = find("locations") or default
    if locations is None:
        return None
    return Setup(locations, site_of(find("socket_folder"), find("shared_memory")))


class Placer:
    """Injects current locations into pods.

    Args:
        source: of locations; None: only references are used.
        hints: whether an object unknown to the source is assumed to be on the host that its reference names.
        site: configuration of the stores.
    """

    def __init__(self, source: Source | None, hints: bool, site: Site) -> None:
        self._source = source
        self._hints = hints
        self._site = site

    @classmethod
    def of(cls, said: Setup) -> Placer:
        """Create the placer of a setup.

        Raises:
            InvalidArgument: there is no such source of locations.
        """
        return cls(*open_source(said.locations), said.site)

    def place(self, pod: Any, references: Iterable[Reference] = (), ids: Iterable[str] = ()) -> Injection | None:
        """A copy of a pod that is scheduled near its inputs.

        Args:
            pod: pod or pod template, as a dictionary or an object of the Kubernetes client.
            references: of its inputs, in addition to its annotations.
            ids: of further objects.

        Returns:
            The injection, with the pod; None: nothing was done, and the log says why.

        Raises:
            InvalidArgument: a placement annotation is invalid.
        """
        said = wishes.of_pod(pod)
        places = self._places()
        bound = said.get(LOCALITY) == "required"
        required = dict.fromkeys(ids)
        hints: dict[str, dict[str, int]] = {}
        for one in references:
            oid = str(one.id)
            required[oid] = None
            if self._hints and oid not in places.objects and _usable(one.host, places, bound):
                hints[oid] = {one.host: one.nbytes}
        locations = Merged(hints, places.objects) if hints else places.objects
        try:
            done = explain(pod, required, locations, nodes=places.nodes, site=self._site)
        except EntrepotError as error:
            if wishes.asks(said):
                raise
            log.warning("Entrepot: a pod stays as it is: %s", error)
            return None
        for problem in done.problems:
            # Not every object is published, and the pod's record mentions it too.
            log.log(
                logging.INFO if problem.code == "unknown-objects" else logging.WARNING, "Entrepot: %s", problem.text
            )
        return done

    def _places(self) -> Places:
        if self._source is None:
            return Places()
        try:
            return self._source.places()
        except EntrepotError as error:
            log.warning("Entrepot: a pod is made without knowing where its inputs are: %s", error)
            return Places()


def _usable(host: str, places: Places, bound: bool) -> bool:
    """Whether a reference's host may stand for a node; a pod must not be bound to a host that is not a node."""
    return bool(host) and (host in places.nodes if places.nodes is not None else not bound)


def brief(done: Injection) -> str:
    """One-line summary of an injection."""
    hosts = [pull for pull in done.pulls if pull.kind == "host"]
    if not hosts:
        return f"reads {done.found.located + len(done.found.unknown)} objects, and no node is known to draw it"
    drawn = ", ".join(f"{pull.value} ({human_bytes(pull.nbytes)})" for pull in hosts[:_TOLD])
    more = f" and {len(hosts) - _TOLD} more" if len(hosts) > _TOLD else ""
    return f"{'bound' if done.required else 'drawn'} to {drawn}{more}, which hold its {done.found.located} inputs"


_lock = threading.Lock()
_placers: dict[Setup, Placer] = {}  # guarded by _lock


def placer(
    configured: Callable[[str], str | None] | None = None,
    *,
    given: Mapping[str, Any] | None = None,
    default: str | None = None,
) -> Placer | None:
    """This process's placer, created once for each setup; None: pods are left alone.

    Args:
        configured, given, default: as for :func:`setup`.

    Raises:
        InvalidArgument: a setting is out of range, or there is no such source of locations.
    """
    said = setup(configured, given=given, default=default)
    if said is None:
        return None
    with _lock:
        if said not in _placers:
            _placers[said] = Placer.of(said)
        return _placers[said]


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork_in_child)
