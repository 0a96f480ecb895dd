"""A writer of this host, whose stream is at another store: its chunks are passed on one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from entrepot import raw_objects
from entrepot._streams.relays import CLOSED, DONE
from entrepot.errors import EntrepotError, StoreFull
from entrepot.ids import ObjectID

from entrepot_cluster.gateway.streams.home_link import ANSWER_SECONDS
from entrepot_cluster.gateway.streams.remote_ends import RemoteEnd

if TYPE_CHECKING:
    from collections.abc import Callable


class RemoteWriter(RemoteEnd):
    """Passes on what the process writes. A chunk stays in the relay until it is in the stream."""

    def start_serving(self) -> Callable[[], None]:
        """Return what a thread of its own runs."""
        return lambda: self.run(self._pass_all_on)

    def _pass_all_on(self) -> None:
        while (chunk := self.next_of_process()) is not None:
            self._pass_on(*chunk)
            self.report_done()
            self.tell([DONE])
        self._link.remove(self)  # it is gone there from now on
        self.ask({"do": "close", "reason": None}, ANSWER_SECONDS)
        self.tell([CLOSED])
        self._to_process.close()
        self.wait_until_read()

    def _pass_on(self, oid: bytes, generation: int | None) -> None:
        try:
            if generation is None:  # it is not in memory
                generation = raw_objects.entry_of(self._store, ObjectID(oid)).generation
            request: dict[str, Any] = {"do": "put", "oid": oid, "generation": generation}
            # For as long as the transfer makes progress; the link interrupts it if the home gives no sign of life
            is_in_stream = self.retry_while_full(lambda: self.ask(request, None), StoreFull)["done"]
            while not is_in_stream:
                self.check_process()
                is_in_stream = self.ask({"do": "wait"}, ANSWER_SECONDS)["done"]
        except EntrepotError:
            self.check_process()  # if it has ended, its chunks were deleted
            raise
