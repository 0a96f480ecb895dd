"""The checks for which everything is healed first: then all that must exist can be read from everywhere.

faults ──all are undone, all workers paused──▶ recovering ──each host reads what the others publish──▶ calm
   ▲                                                                                                    │
   └──all keys are deleted, and others used──checked────────────────────────────────────────────────────┘
"""

from __future__ import annotations

import faulthandler
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import cycle
from typing import TypeVar

import entrepot
from entrepot.errors import EntrepotError
from entrepot.origins import Life as StoreLife
from entrepot.origins import alias
from entrepot_io.values import get_value, put_value

from random_faults.content import WrongBytes, content, number_of
from random_faults.hosts import wait_until
from random_faults.model import Life
from random_faults.shared import Shared
from random_faults.workers import Worker

RECOVERY_SECONDS = 90.0
PAUSE_SECONDS = 150.0  # longer than any call may take
PROBE_BYTES = 1000
DOUBTFUL_READS = 3
LOST_SECONDS = 60.0  # how long what must exist may be out of reach after everything was healed

T = TypeVar("T")


class Calm:
    """Checks everything while nothing is wrong; for one thread.

    Args:
        shared: what all workers share.
        workers: to be paused meanwhile.
    """

    def __init__(self, shared: Shared, workers: Sequence[Worker]) -> None:
        self._shared = shared
        self._workers = workers
        self._probes = 0

    def check(self) -> None:
        """Check everything; all faults must have been undone."""
        for worker in self._workers:
            worker.pause()
        try:
            wait_until(
                lambda: all(worker.is_paused() for worker in self._workers), "the workers to pause", PAUSE_SECONDS
            )
        except AssertionError as error:
            faulthandler.dump_traceback(2)
            doing = "; ".join(text for worker in self._workers if (text := worker.doing()))
            raise AssertionError(f"{error}: {doing}") from None
        with self._stores() as stores:
            begin = time.monotonic()
            self._wait_for_recovery(stores)
            report = self._shared.report
            report.longest_recovery = max(report.longest_recovery, round(time.monotonic() - begin, 2))
            lives = self._shared.model.lives()
            for name, store in stores.items():
                for life in lives:
                    if life.is_certain:
                        self._check_life(life, name, store)
            # To find out that something is lost takes more than a second, for the last of its hosts may just come back.
            doubtful = [life for life in lives if not life.is_certain]
            for life, (name, store) in zip(doubtful[-DOUBTFUL_READS:], cycle(stores.items()), strict=False):
                self._check_life(life, name, store)
            self._check_bare_ids(stores)
            self._delete_everything(stores)
        self._shared.report.calms += 1
        for worker in self._workers:
            worker.go_on()

    @contextmanager
    def _stores(self) -> Iterator[dict[str, entrepot.Store]]:
        with ExitStack() as stack:
            yield {host.name: stack.enter_context(entrepot.connect(host.address)) for host in self._shared.hosts}

    def _wait_for_recovery(self, stores: dict[str, entrepot.Store]) -> None:
        """Until each host has read what each other one has just published."""
        last: list[EntrepotError] = []

        def is_recovered() -> bool:
            try:
                for name, store in stores.items():
                    self._probes += 1
                    oid = store.put(self._probes, id=store.derive(f"probe {self._probes}"))
                    store.publish(oid)
                    for other, reader in stores.items():
                        if other != name and reader.get(oid, timeout=2) != self._probes:
                            self._shared.report.breaks(f"{other}: probe {self._probes} of {name} was read as another")
                    for each in stores.values():
                        each.delete(oid)
            except EntrepotError as error:
                last[:] = [error]
                return False
            return True

        try:
            wait_until(is_recovered, "the cluster to recover", RECOVERY_SECONDS)
        except AssertionError as error:
            logs = "\n".join(f"--- gateway of {host.name}:\n{host.log('gateway')}" for host in self._shared.hosts)
            raise AssertionError(f"{error}: {last[0] if last else 'no error'}\n{logs}") from None

    def _check_life(self, life: Life, name: str, store: entrepot.Store) -> None:
        report = self._shared.report
        if life.is_certain:
            report.certain_reads += 1
        else:
            report.doubtful_reads += 1
        try:
            seconds = LOST_SECONDS if life.is_certain and not report.broken else 0.0
            value = _eventually(partial(get_value, life.reference, address=store.address), seconds)
            number = number_of(value)
        except WrongBytes as error:
            report.breaks(f"{name}: {error}")
        except EntrepotError as error:
            if life.is_certain:
                report.breaks(
                    f"{name}: write {life.number} of {life.key} in {sorted(life.stores)} is lost, though nothing is "
                    f"wrong: {type(error).__name__}: {error}; {self._places(life)}"
                )
            else:
                report.doubtful_lost += 1
        else:
            if number != life.number:
                report.breaks(f"{name}: the reference to write {life.number} of {life.key} has read write {number}")

    def _places(self, life: Life) -> str:
        """Where it is, as far as can be found out."""
        oid, places = life.reference.id, []
        with self._stores() as stores:
            for name, store in stores.items():
                try:
                    places.append(f"{name}: {store.exists(oid)}, {store.locate(oid)}")
                except EntrepotError as error:
                    places.append(f"{name}: {error}")
        return "; ".join(places)

    def _check_bare_ids(self, stores: dict[str, entrepot.Store]) -> None:
        """An ID alone means the life that was published last, wherever the clocks stand; references stay exact."""
        names = list(stores)
        for first, second, reader in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
            self._probes += 1
            key = f"twice {self._probes}"
            older = put_value(stores[names[first]], key, content(self._probes, PROBE_BYTES))
            _eventually(partial(stores[names[first]].publish, older.id))
            newer = put_value(stores[names[second]], key, content(self._probes + 1, PROBE_BYTES))
            _eventually(partial(stores[names[second]].publish, newer.id))
            store = stores[names[reader]]
            expected = {"the ID alone": self._probes + 1, "older": self._probes, "newer": self._probes + 1}
            read = {
                "the ID alone": number_of(_eventually(partial(store.get, older.id))),
                "older": number_of(_eventually(partial(get_value, older, address=store.address))),
                "newer": number_of(_eventually(partial(get_value, newer, address=store.address))),
            }
            if read != expected:
                self._shared.report.breaks(f"{names[reader]}: {read} was read, and {expected} was expected")
            self._probes += 1
            for life in (older, newer):
                for each in stores.values():
                    each.delete(life.id)
                    place = (each.scope, each.session_name)
                    each.delete(alias(life.id, StoreLife(life.instance, life.generation), place))

    def _delete_everything(self, stores: dict[str, entrepot.Store]) -> None:
        """Delete all keys everywhere, with the copies that have IDs of their own, and let the workers use others."""
        for store in stores.values():
            place = (store.scope, store.session_name)
            for life in self._shared.model.lives():
                reference = life.reference
                store.delete(reference.id)
                store.delete(alias(reference.id, StoreLife(reference.instance, reference.generation), place))
        for key in self._shared.keys.all():
            self._shared.model.forget(key)
        self._shared.keys.renew()


def _eventually(call: Callable[[], T], seconds: float = LOST_SECONDS) -> T:
    """Make a call, again and again as long as it fails: on a busy machine, a directory may be slow, say."""
    end = time.monotonic() + seconds
    while True:
        try:
            return call()
        except EntrepotError:
            if time.monotonic() > end:
                raise
        time.sleep(0.2)  # between two attempts
