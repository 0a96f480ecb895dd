"""Changes of the instances, as they happen."""

from __future__ import annotations

import threading
import time

from entrepot.errors import DirectoryUnavailable

from entrepot_cluster.directory.backends.interface import Backend, LeaseChange, RecordChange, Subscription
from entrepot_cluster.directory.instances import InstanceTable
from entrepot_cluster.directory.model import Instance, InstanceChange

_SLICE_SECONDS = 0.5  # the table is confirmed as fresh this often


class InstanceWatch:
    """Reports the changes of the instances; created by ``Directory.watch``. For one thread, except :meth:`close`.

    While somebody waits here, the directory's other methods need no requests to know who is live.
    """

    def __init__(self, backend: Backend, table: InstanceTable) -> None:
        self._backend = backend
        self._table = table
        self._subscription: Subscription | None = None
        self._seen: dict[int, Instance] = {}
        self._closed = threading.Event()

    def wait(self, timeout: float) -> list[InstanceChange]:
        """Wait for changes since the last call; the first call returns at once, and reports all instances.

        Args:
            timeout: seconds.

        Returns:
            The changes; empty: there were none, or the watch was closed.

        Raises:
            DirectoryUnavailable: the directory cannot be reached. The next call tries again, and reports the changes
                that were missed.
        """
        end = time.monotonic() + timeout
        while not self._closed.is_set():
            if self._subscription is None:
                self._subscription = self._backend.subscribe(self._table.refresh())
            elif not self._follow(self._subscription, min(end - time.monotonic(), _SLICE_SECONDS)):
                continue
            changes = self._compare()
            if changes or time.monotonic() >= end:
                return changes
        return []

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._closed.is_set()

    def close(self) -> None:
        """End the watch; a call of :meth:`wait` in another thread returns."""
        self._closed.set()
        subscription = self._subscription
        if subscription is not None:
            subscription.close()

    def __enter__(self) -> InstanceWatch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _follow(self, subscription: Subscription, seconds: float) -> bool:
        """Apply what the subscription reports; False: a new snapshot is needed."""
        events: list[RecordChange | LeaseChange] | None = None
        try:
            events = subscription.wait(max(0.0, seconds))
        except DirectoryUnavailable:
            if not self._closed.is_set():
                raise
        finally:
            if events is None:  # also after an error: the directory may come back with other data
                subscription.close()
                self._subscription = None
        if events is None:
            return False
        self._table.apply(events)
        self._table.confirm_fresh(time.monotonic())
        return True

    def _compare(self) -> list[InstanceChange]:
        before, now = self._seen, self._table.instances()
        self._seen = now
        changes = [InstanceChange("departed", before[number]) for number in before.keys() - now.keys()]
        for number, instance in now.items():
            earlier = before.get(number)
            if earlier == instance:
                continue
            if earlier is not None and earlier.live == instance.live:
                if instance.live:
                    changes.append(InstanceChange("changed", instance))
            else:
                changes.append(InstanceChange("joined" if instance.live else "lost", instance))
        return changes
