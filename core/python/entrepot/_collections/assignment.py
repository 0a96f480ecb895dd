"""Which worker reads which members of a collection, so that few bytes move and all workers read about the same amount.

The fair share of each of W workers is S = (bytes of all members) / W. :func:`assign` guarantees:

- no worker gets more than S plus the largest member;
- the bytes that have to move, because the worker that gets a member does not have it, are at most what they would be if
  members could be split at will, and no worker got more than S.

A worker is *full* from S bytes on, and only one that is not full is given anything, which yields the first guarantee.
For the second, each member is placed with a full worker's members being passed on, if need be, to other workers that
have them too: along a shortest path that ends at a worker that is not full. If there is no such path for a member, all
workers that can be reached from it are full, with members that no other worker has; so any split would leave at least
as many bytes without a place. What is left without one goes to whoever is not full.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Collection, Sequence


def assign(sizes: Sequence[int], having: Sequence[Collection[int]], workers: int) -> list[list[int]]:
    """Distribute members over workers.

    Args:
        sizes: of the members in bytes, not negative.
        having: for each member the workers that have its bytes already, by number.
        workers: how many there are, at least 1.

    Returns:
        for each worker the positions of its members, in order.
    """
    loads = _Loads(sizes, workers)
    left: list[int] = []
    places = [frozenset(each) for each in having]
    for member in sorted(range(len(sizes)), key=lambda member: (-sizes[member], member)):
        if sizes[member] and not loads.place(member, places[member]):
            left.append(member)
    loads.place_anywhere(left)
    for member, size in enumerate(sizes):
        if not size:  # costs nothing anywhere, so let the numbers of members be even
            loads.add(min(places[member] or range(workers), key=loads.count), member, places[member])
    return loads.members()


class _Loads:
    """What each worker has been given. For one call of :func:`assign`.

    Args:
        sizes, workers: as there.
    """

    def __init__(self, sizes: Sequence[int], workers: int) -> None:
        self._sizes = sizes
        self._workers = workers
        self._total = sum(sizes)
        self._bytes = [0] * workers
        self._counts = [0] * workers
        # For each worker its members by who else has them: those of one group can take the same ways.
        self._groups: list[dict[frozenset[int], list[int]]] = [defaultdict(list) for _ in range(workers)]
        self._closed: set[int] = set()  # full workers that cannot pass on anything, now or later

    def count(self, worker: int) -> int:
        """Number of members of a worker."""
        return self._counts[worker]

    def members(self) -> list[list[int]]:
        """For each worker the positions of its members, in order."""
        return [sorted(member for group in groups.values() for member in group) for groups in self._groups]

    def add(self, worker: int, member: int, places: frozenset[int]) -> None:
        """Give a member to a worker."""
        self._groups[worker][places].append(member)
        self._bytes[worker] += self._sizes[member]
        self._counts[worker] += 1

    def place(self, member: int, places: frozenset[int]) -> bool:
        """Give a member to one of the workers that have it; return whether that was possible."""
        while True:
            free = [worker for worker in places if not self._is_full(worker)]
            if free:
                self.add(min(free, key=lambda worker: (self._bytes[worker], worker)), member, places)
                return True
            path = self._path_from(places)
            if not path:
                return False
            self._pass_on(path)

    def place_anywhere(self, members: Sequence[int]) -> None:
        """Give members to workers that are not full, whether they have them or not."""
        free = [(nbytes, worker) for worker, nbytes in enumerate(self._bytes) if not self._is_full(worker)]
        heapq.heapify(free)
        for member in members:  # there is such a worker: the bytes of all others together are less than the total
            _, worker = heapq.heappop(free)
            self.add(worker, member, frozenset())
            if not self._is_full(worker):
                heapq.heappush(free, (self._bytes[worker], worker))

    def _is_full(self, worker: int) -> bool:
        return self._bytes[worker] * self._workers >= self._total

    def _path_from(self, places: frozenset[int]) -> list[tuple[int, frozenset[int], int]]:
        """Find a shortest path from full workers to one that is not full.

        Returns:
            its steps from its end: the worker that passes a member on, the group of that, and who gets it. Empty: there
            is no path.
        """
        reached: dict[int, tuple[int, frozenset[int]] | None] = {
            worker: None for worker in sorted(places) if worker not in self._closed
        }
        queue = deque(reached)
        while queue:
            giver = queue.popleft()
            for group, members in self._groups[giver].items():
                if not members:
                    continue
                for taker in sorted(group):
                    if taker in reached or taker in self._closed:
                        continue
                    reached[taker] = (giver, group)
                    if not self._is_full(taker):
                        return self._steps(reached, taker)
                    queue.append(taker)
        self._closed.update(reached)  # no member of theirs can ever go elsewhere, so nothing comes to be free there
        return []

    @staticmethod
    def _steps(
        reached: dict[int, tuple[int, frozenset[int]] | None], end: int
    ) -> list[tuple[int, frozenset[int], int]]:
        steps, taker = [], end
        while (step := reached[taker]) is not None:
            steps.append((step[0], step[1], taker))
            taker = step[0]
        return steps

    def _pass_on(self, path: list[tuple[int, frozenset[int], int]]) -> None:
        """Pass one member along each step, from the end, as long as that frees its giver for the next."""
        for giver, group, taker in path:
            member = self._groups[giver][group].pop()
            self._bytes[giver] -= self._sizes[member]
            self._counts[giver] -= 1
            self.add(taker, member, group)
            if self._is_full(giver):
                return  # it had more than its share, and has less now; the next path is another one
