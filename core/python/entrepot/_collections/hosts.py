"""Where the members of a collection are: in this store, and in others of its cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from entrepot._client import collection_calls, gateway_calls
from entrepot._client.gateway_calls import Place
from entrepot._collections.assignment import assign
from entrepot.errors import InvalidArgument

if TYPE_CHECKING:
    from entrepot import _core
    from entrepot._collections.metadata import Contents

PREFETCH_IDS = 10_000  # in one call to the gateway

Workers = Mapping[str, str] | Sequence[str]
"""Where each worker runs: a host's name or a store's instance. In a sequence, hosts are workers of the same name."""


def is_here(raw: _core.Client, contents: Contents, position: int) -> bool:
    """Whether a member is in the store itself, in memory or on its disk."""
    return raw.generation_of(contents.id_of(position).binary) is not None


def fetch(raw: _core.Client, contents: Contents, positions: Sequence[int], max_bytes: int) -> None:
    """Start fetching those members that are not in the store, as many as are within ``max_bytes``."""
    missing = [each for each in positions if not is_here(raw, contents, each)]
    ids = [contents.id_of(each).binary for each in _within(contents, missing, max_bytes)]
    for begin in range(0, len(ids), PREFETCH_IDS):
        gateway_calls.prefetch(raw, ids[begin : begin + PREFETCH_IDS])


def prefetch(raw: _core.Client, contents: Contents, positions: Sequence[int], max_bytes: int) -> None:
    """Start fetching members, or loading them from disk, as many as are within ``max_bytes``."""
    wanted = _within(contents, positions, max_bytes)
    raw.load([contents.id_of(each).binary for each in wanted if is_here(raw, contents, each)])
    fetch(raw, contents, wanted, max_bytes)


def _within(contents: Contents, positions: Sequence[int], max_bytes: int) -> list[int]:
    within: list[int] = []
    for position in positions:
        max_bytes -= contents.bytes_of(position)
        if max_bytes < 0:
            break
        within.append(position)
    return within


def places_of(
    raw: _core.Client, host: str, contents: Contents, positions: Sequence[int], timeout: float
) -> list[list[Place]]:
    """Return for each member the stores that have it.

    Without a gateway, only this store is known.

    Raises:
        DirectoryUnavailable: the directory does not answer.
        Timeout: not in time.
    """
    ids = [contents.id_of(position).binary for position in positions]
    places: list[list[Place]] = []
    for begin in range(0, len(ids), collection_calls.LOCATE_IDS):
        part = ids[begin : begin + collection_calls.LOCATE_IDS]
        answered = collection_calls.locate_many(raw, part, timeout)
        if answered is None:
            break
        places += answered
    for index in range(len(places), len(ids)):  # no gateway
        generation = raw.generation_of(ids[index])
        nbytes = contents.bytes_of(positions[index])
        here = Place(raw.instance, host, generation or 0, nbytes, True, 0.0)
        places.append([] if generation is None else [here])
    return places


def assign_to(workers: Workers, sizes: Sequence[int], places: Callable[[], list[list[Place]]]) -> dict[str, list[int]]:
    """Distribute members over workers; see :func:`entrepot._collections.assignment.assign`.

    Args:
        workers: as given by the user.
        sizes: of the members.
        places: returns where each is; called once the workers are known to be right.

    Raises:
        InvalidArgument: there are no workers.
    """
    where = _checked(workers)
    names = list(where)
    by_target: dict[str, list[int]] = {}
    for number, target in enumerate(where.values()):
        by_target.setdefault(target, []).append(number)
    having = [
        {
            number
            for place in of_member
            if place.is_live
            for target in {place.instance, place.host}
            for number in by_target.get(target, ())
        }
        for of_member in places()
    ]
    return dict(zip(names, assign(sizes, having, len(names)), strict=True))


def _checked(workers: Workers) -> dict[str, str]:
    if isinstance(workers, str) or not isinstance(workers, (Mapping, Sequence)):
        raise InvalidArgument(
            "workers must be a mapping from each worker to its host or instance, or a sequence of hosts, but got "
            f"{workers!r}"
        )
    where = dict(workers) if isinstance(workers, Mapping) else {host: host for host in workers}
    if len(where) != len(workers):
        raise InvalidArgument(
            f"a host is named twice in {list(workers)}: pass a mapping from each worker to its host instead"
        )
    if not where:
        raise InvalidArgument("no workers were given: name at least one")
    for worker, target in where.items():
        if not isinstance(target, str) or not target:
            raise InvalidArgument(f"worker {worker!r} must be on a host or instance, given as text, but got {target!r}")
    return where
