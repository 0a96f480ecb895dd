"""Workers: tasks on a host that put, get, delete, move and publish at random, and check what they get.

working ──pause()──▶ paused, once the call that is under way has returned ──go_on()──▶ working ──end()──▶ ended
"""

from __future__ import annotations

import random
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

import entrepot
from entrepot.errors import CorruptData, EntrepotError, ObjectExists, ObjectLost, ObjectNotFound
from entrepot_io.keys import object_name
from entrepot_io.values import get_value, put_value

from random_faults.content import HEAD_BYTES, WrongBytes, content, number_of
from random_faults.hosts import ClusterHost
from random_faults.model import Life
from random_faults.shared import Shared
from random_faults.timed_calls import TimedCalls

LARGE_BYTES = 6 << 20  # several pieces
TIMEOUTS = (0.0, 0.3, 3.0)
PUBLISH_SECONDS = 10.0
MOVE_SECONDS = 15.0


class Worker:
    """A task on a host.

    Args:
        shared: what all workers share.
        host: where it runs.
        seed: of its choices.
    """

    def __init__(self, shared: Shared, host: ClusterHost, seed: int) -> None:
        self._shared = shared
        self._host = host
        self._rng = random.Random(seed)
        self._calls = TimedCalls(host.name, shared.report)
        self._store: entrepot.Store | None = None
        self._works = threading.Event()
        self._is_paused = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"worker of {host.name}", daemon=True)
        self._operations: list[tuple[Callable[[entrepot.Store], None], int]] = [
            (self._put, 14),
            (self._get_reference, 30),
            (self._get_local, 20),
            (self._get_by_id, 12),
            (self._get_by_name, 6),
            (self._publish, 12),
            (self._move, 12),
            (self._delete, 3),
            (self._locate, 3),
        ]

    def start(self) -> None:
        """Begin to work."""
        self._works.set()
        self._thread.start()

    def pause(self) -> None:
        """Do nothing after the present call."""
        self._works.clear()

    def is_paused(self) -> bool:
        """Whether it does nothing since :meth:`pause`."""
        return self._is_paused.is_set() or not self._thread.is_alive()

    def go_on(self) -> None:
        """Work again."""
        self._is_paused.clear()
        self._works.set()

    def end(self) -> None:
        """End it; it must be paused, or not have started."""
        self._ended.set()
        self._works.set()
        if self._thread.is_alive():
            self._thread.join(30)

    def doing(self) -> str:
        """What call is under way; empty: none."""
        return self._calls.doing()

    def hangs(self) -> str:
        """What it has been doing for too long; empty: nothing."""
        return self._calls.hangs()

    def _run(self) -> None:
        operations, weights = zip(*self._operations, strict=True)
        while not self._ended.is_set():
            if not self._works.is_set():
                self._is_paused.set()
                self._works.wait()
                continue
            try:
                if self._store is None:
                    self._store = self._calls.make("connect", lambda: entrepot.connect(self._host.address))
                self._rng.choices(operations, weights)[0](self._store)
            except WrongBytes as error:
                self._breaks(str(error))
            except EntrepotError:
                self._disconnect()  # a store that was lost is another one now
            except Exception:
                self._breaks(traceback.format_exc())
            time.sleep(self._rng.uniform(0.0, 0.15))  # between two calls, not a wait for a result
        self._disconnect()

    def _disconnect(self) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None

    def _breaks(self, what: str) -> None:
        self._shared.report.breaks(f"{self._host.name}: {what}")

    def _notes(self, what: str) -> None:
        self._shared.report.notes(f"{self._host.name}: {what}")

    def _check_error(self, what: str, error: EntrepotError, since: float, hosts: set[str]) -> None:
        """Note an error without a reason; damaged bytes are none."""
        if self._shared.disturbances.is_quiet({self._host.name, *hosts}, since):
            self._notes(f"{what}: {type(error).__name__}: {error}")
        if isinstance(error, CorruptData):
            self._breaks(f"{what}: bytes that were damaged on the way were not sent again: {error}")

    # --- what it does

    def _put(self, store: entrepot.Store) -> None:
        key = self._shared.keys.choose(self._rng)
        nbytes = self._rng.choice([HEAD_BYTES, 500, 20_000, 300_000, LARGE_BYTES])
        with self._shared.model.changing(key) as is_free:
            if not is_free:
                return
            number = self._shared.model.begin_put(self._host.name, key)
            since = time.monotonic()
            try:
                reference = self._calls.make("put", lambda: put_value(store, key, content(number, nbytes)))
            except EntrepotError as error:
                if self._shared.disturbances.is_store_quiet(self._host.name, since):
                    self._notes(f"put: {type(error).__name__}: {error}")
                raise
            self._shared.model.end_put(self._host.name, number, reference)

    def _get_reference(self, store: entrepot.Store) -> None:
        life = self._any_life(lambda life: True)
        if life is None:
            return
        before, since = self._shared.model.knowledge_of(life), time.monotonic()
        try:
            value = self._calls.make("get by reference", lambda: get_value(life.reference, address=store.address))
        except EntrepotError as error:
            after = self._shared.model.knowledge_of(life)
            if before.is_certain and after == before:
                self._check_error(f"reading write {life.number} by its reference", error, since, set(after.stores))
            raise
        number = number_of(value)
        if number != life.number:
            self._breaks(f"the reference to write {life.number} of {life.key} has read write {number}")

    def _get_local(self, store: entrepot.Store) -> None:
        keys = self._shared.model.local_keys(self._host.name)
        key = self._rng.choice(keys or [self._shared.keys.choose(self._rng)])
        before = self._shared.model.local(self._host.name, key)
        if before[0] is None:
            return
        since = time.monotonic()
        try:
            value = self._calls.make("get here", lambda: store.get(store.derive(key), remote=False))
        except EntrepotError as error:
            if self._shared.model.local(self._host.name, key) == before:
                if isinstance(error, (ObjectNotFound, ObjectLost)):
                    self._breaks(f"write {before[0]} of {key} is here, and was not read: {error}")
                elif self._shared.disturbances.is_store_quiet(self._host.name, since):
                    self._notes(f"get here: {type(error).__name__}: {error}")
            raise
        number = number_of(value)
        if self._shared.model.local(self._host.name, key) == before and number != before[0]:
            self._breaks(f"write {before[0]} of {key} is here, and write {number} was read")

    def _get_by_id(self, store: entrepot.Store) -> None:
        key, timeout = self._shared.keys.choose(self._rng), self._rng.choice(TIMEOUTS)
        before = self._shared.model.local(self._host.name, key)
        value = self._calls.make("get by ID", lambda: store.get(store.derive(key), timeout=timeout), timeout or None)
        self._check_value("by its ID", key, value, before)

    def _get_by_name(self, store: entrepot.Store) -> None:
        key, timeout = self._shared.keys.choose(self._rng), self._rng.choice([0.0, 0.3, 3.0])
        before = self._shared.model.local(self._host.name, key)
        name = object_name(key)
        value = self._calls.make("get by name", lambda: store.get_by_name(name, timeout=timeout), timeout or None)
        self._check_value("by its name", key, value, before)

    def _check_value(self, how: str, key: str, value: Any, before: tuple[int | None, int]) -> None:
        number = number_of(value)
        self._shared.check_owner(f"{self._host.name}: {how}", key, number)
        if before[0] is not None and self._shared.model.local(self._host.name, key) == before and number != before[0]:
            self._breaks(f"{how}: write {before[0]} of {key} is here, and write {number} was read")

    def _publish(self, store: entrepot.Store) -> None:
        oid = store.derive(self._shared.keys.choose(self._rng))
        since = time.monotonic()
        try:
            self._calls.make("publish", lambda: store.publish(oid, timeout=PUBLISH_SECONDS), PUBLISH_SECONDS)
        except ObjectNotFound:
            return  # there may be none
        except EntrepotError as error:
            self._check_error("publish", error, since, set())
            raise

    def _move(self, store: entrepot.Store) -> None:
        here = self._host.name
        target = self._rng.choice([host.name for host in self._shared.hosts if host.name != here])
        life = self._any_life(lambda life: life.is_certain and life.stores == {here})
        if life is None:
            return
        with self._shared.model.changing(life.key) as is_free:
            if not is_free or self._shared.model.knowledge_of(life)[:2] != (True, frozenset({here})):
                return
            self._shared.model.begin_move(life.number, here, target)
            since = time.monotonic()
            try:
                self._calls.make(
                    "move", lambda: store.migrate(life.reference.id, target, timeout=MOVE_SECONDS), MOVE_SECONDS
                )
            except ObjectExists:
                return  # the other host has another write of this key
            except EntrepotError as error:
                if not isinstance(error, CorruptData):  # of a request between the gateways, which is not repeated
                    self._check_error("move", error, since, {target})
                raise
            self._shared.model.end_move(life.number, target)

    def _delete(self, store: entrepot.Store) -> None:
        key = self._shared.keys.choose(self._rng)
        with self._shared.model.changing(key) as is_free:
            if is_free:
                self._shared.model.begin_delete(self._host.name, key)
                self._calls.make("delete", lambda: store.delete(store.derive(key)))

    def _locate(self, store: entrepot.Store) -> None:
        oid = store.derive(self._shared.keys.choose(self._rng))
        self._calls.make("locate", lambda: store.locate(oid, timeout=PUBLISH_SECONDS), PUBLISH_SECONDS)
        self._calls.make("prefetch", lambda: store.prefetch(oid))

    def _any_life(self, is_wanted: Callable[[Life], bool]) -> Life | None:
        lives = [life for life in self._shared.model.lives() if is_wanted(life)]
        return self._rng.choice(lives) if lives else None
