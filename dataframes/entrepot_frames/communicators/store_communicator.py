"""Exchange through the store: on one host, buffers change hands by reference.

Every message is an object whose ID follows from the group, the number of the operation, sender and receiver, so that
a receiver can wait for it without being told: ``get`` waits for the seal. Its bytes are written once, into shared
memory, and read there.
"""

from __future__ import annotations

import hashlib
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from entrepot.errors import EntrepotError, ObjectExists, ObjectNotFound, Timeout
from entrepot.ids import ObjectID

from entrepot_frames.communicators.communicator import Communicator
from entrepot_frames.errors import ProgramsDiffer, RankFailed

if TYPE_CHECKING:
    from entrepot import Store

DEFAULT_TIMEOUT = 300.0
# How long a wait goes on until it looks whether a rank has failed.
LOOK_SECONDS = 0.5
_ALL = -1  # as receiver: every rank


class StoreCommunicator(Communicator):
    """Ranks that are clients of one store, or of stores of one cluster.

    A message is deleted as soon as nobody will ask for it any more: one for a single rank by that rank, as soon as it
    has it, and one for all ranks by its sender, after the next operation for which every rank had to wait for every
    other: a rank that takes part in it has finished all earlier ones. The last ones go in :meth:`settle`, or with the
    session.

    Args:
        store: a session that all ranks share and that nothing else uses; it must outlive the communicator.
        group: distinguishes this communicator from others in the session.
        rank, size: as for :class:`Communicator`.
        timeout: seconds to wait for the other ranks in one operation. Default: 300.
        is_wanted: whether the program is still wanted; asked while a rank waits.
    """

    def __init__(
        self,
        store: Store,
        group: str,
        rank: int,
        size: int,
        *,
        timeout: float = DEFAULT_TIMEOUT,
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        super().__init__(rank, size)
        self._store = store
        self._group = group
        self._timeout = timeout
        self._is_wanted = is_wanted
        self._number = 0  # of the current operation
        self._kept: deque[tuple[int, ObjectID]] = deque()  # sent to all: the operation's number, and the message

    @property
    def phase(self) -> str:
        return f"{self._operator}: operation {self._number}" if self._operator else f"operation {self._number}"

    def all_gather(self, value: Any) -> list[Any]:
        number = self._begin()
        self._send_to_all(number, "all_gather", value)
        values = self._receive("all_gather", {rank: self._id(number, rank, _ALL) for rank in self._others()})
        self._forget_before(number)
        return [value if rank == self.rank else values[rank] for rank in range(self.size)]

    def all_to_all(self, values: Sequence[Any]) -> list[Any]:
        self._checked_values(values)
        number = self._begin()
        others = self._others()
        if others:
            self._store.put_many(
                [("all_to_all", values[rank]) for rank in others],
                ids=[self._id(number, self.rank, rank) for rank in others],
            )
        received = self._receive_own("all_to_all", {rank: self._id(number, rank, self.rank) for rank in others})
        self._forget_before(number)
        return [values[rank] if rank == self.rank else received[rank] for rank in range(self.size)]

    def broadcast(self, value: Any = None, root: int = 0) -> Any:
        number = self._begin()
        if self._checked_root(root) != self.rank:
            return self._receive("broadcast", {root: self._id(number, root, _ALL)})[root]
        if self.size > 1:
            self._send_to_all(number, "broadcast", value)
        return value

    def gather(self, value: Any, root: int = 0) -> list[Any] | None:
        number = self._begin()
        if self._checked_root(root) != self.rank:
            self._store.put(("gather", value), id=self._id(number, self.rank, root))
            return None
        received = self._receive_own("gather", {rank: self._id(number, rank, root) for rank in self._others()})
        return [value if rank == root else received[rank] for rank in range(self.size)]

    def fail(self, rank: int, reason: str, phase: str = "") -> None:
        report_failure(self._store, self._group, rank, phase, reason)

    def settle(self) -> None:
        self._forget_before(self._number + 1)

    def _begin(self) -> int:
        self._number += 1
        return self._number

    def _others(self) -> list[int]:
        return [rank for rank in range(self.size) if rank != self.rank]

    def _id(self, number: int, sender: int, receiver: int) -> ObjectID:
        return _message_id(self._group, f"{number}:{sender}:{receiver}")

    def _send_to_all(self, number: int, operation: str, value: Any) -> None:
        if self.size == 1:
            return
        oid = self._id(number, self.rank, _ALL)
        self._store.put((operation, value), id=oid)
        self._kept.append((number, oid))

    def _forget_before(self, number: int) -> None:
        """Every rank takes part in operation ``number``, so nobody will ask for messages of earlier ones."""
        while self._kept and self._kept[0][0] < number:
            self._store.delete(self._kept.popleft()[1])

    def _receive_own(self, operation: str, messages: dict[int, ObjectID]) -> dict[int, Any]:
        """Receive messages for this rank alone, and delete them; their values stay valid."""
        values = self._receive(operation, messages)
        for oid in messages.values():
            self._store.delete(oid)
        return values

    def _receive(self, operation: str, messages: dict[int, ObjectID]) -> dict[int, Any]:
        """Wait for messages, by sender; looks now and then whether a rank has failed."""
        if not messages:
            return {}
        deadline = time.monotonic() + self._timeout
        while True:
            left = deadline - time.monotonic()
            try:
                values = self._store.get_many(list(messages.values()), timeout=max(0.0, min(LOOK_SECONDS, left)))
                break
            except (Timeout, ObjectNotFound):
                raise_failure(self._store, self._group)
                if not self._is_wanted():
                    raise RankFailed(-1, self.phase, "its executor is gone") from None
                if left <= 0:
                    raise self._timed_out(operation, messages) from None
        result: dict[int, Any] = {}
        for sender, (sent, value) in zip(messages, values, strict=True):
            if sent != operation:
                raise ProgramsDiffer(
                    f"rank {self.rank} called {operation} in {self.phase}, and rank {sender} called {sent} there: all "
                    "ranks have to call the same operations in the same order, whatever rows they have"
                )
            result[sender] = value
        return result

    def _timed_out(self, operation: str, messages: dict[int, ObjectID]) -> EntrepotError:
        absent = [str(sender) for sender, oid in messages.items() if not self._store.exists(oid)]
        return Timeout(
            f"rank {self.rank} waited {self._timeout:g} s in {self.phase} ({operation}) for rank {', '.join(absent)}: "
            "if they are only slow, give Executor a longer timeout="
        )


def report_failure(store: Store, group: str, rank: int, phase: str, reason: str) -> None:
    """Tell all ranks of a group that one has failed; the first report counts."""
    try:
        store.put([rank, phase, reason], id=_failure_id(group))
    except ObjectExists:
        return  # somebody was first


def raise_failure(store: Store, group: str) -> None:
    """Raise :class:`RankFailed` if a rank of the group has failed."""
    try:
        rank, phase, reason = store.get(_failure_id(group), timeout=0)
    except ObjectNotFound:
        return
    raise RankFailed(rank, phase, reason)


def _failure_id(group: str) -> ObjectID:
    return _message_id(group, "failure")


def _message_id(group: str, key: str) -> ObjectID:
    return ObjectID(hashlib.blake2b(f"entrepot_frames\0{group}\0{key}".encode(), digest_size=20).digest())
