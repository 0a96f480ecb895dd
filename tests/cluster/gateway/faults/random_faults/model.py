"""What must be readable, what may be lost, and what must never be returned.

A *life* is one write of a key: by one reference, exactly its bytes may ever be read.

    writing ──the put returned──▶ certain ──a store that may be the only one with it died, it was deleted,
       │                             │      or another write to its key began there──▶ doubtful
       │                             └──moving ──the move returned──▶ certain, at the other store
       │                                  └──an error, or no answer──▶ certain, at one of the two
       └──an error──▶ never known: nobody has its reference, but its bytes may be read by the key

A certain life can be read by its reference as long as nothing is wrong with the hosts that take part. A doubtful one
may be lost, and raises ``ObjectLost`` then. Copies that other hosts have fetched are not counted on.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from entrepot_io.reference import Reference


@dataclass(slots=True)
class Life:
    """One write of a key; guarded by the model's lock.

    Attributes:
        number: of the write.
        key: what was written.
        reference: to exactly this.
        stores: at least one of these hosts has it, if it is certain.
        is_certain: nothing has happened that may have cost it.
        changes: how often something has happened to it.
    """

    number: int
    key: str
    reference: Reference
    stores: frozenset[str]
    is_certain: bool = True
    changes: int = 0


class Knowledge(NamedTuple):
    """What is known of a life at one moment."""

    is_certain: bool
    stores: frozenset[str]
    changes: int


class Model:
    """All writes. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next = 0  # number; guarded by _lock
        self._keys: dict[int, str] = {}  # of writes, by their numbers; guarded by _lock
        self._lives: dict[int, Life] = {}  # whose puts returned; guarded by _lock
        self._local: dict[tuple[str, str], int] = {}  # by host and key: what it must have itself; guarded by _lock
        self._versions: dict[tuple[str, str], int] = {}  # how often that changed; guarded by _lock
        self._written: set[str] = set()  # keys that are being changed; guarded by _lock
        self._dead: set[str] = set()  # instances; guarded by _lock

    # --- changes

    @contextmanager
    def changing(self, key: str) -> Iterator[bool]:
        """Change a key within the block, unless somebody else does so (False): then do nothing."""
        with self._lock:
            is_free = key not in self._written
            self._written.add(key)
        try:
            yield is_free
        finally:
            if is_free:
                with self._lock:
                    self._written.discard(key)

    def begin_put(self, host: str, key: str) -> int:
        """A put begins, which may replace what the host has under this key; returns the number of the write."""
        with self._lock:
            self._forget_at(host, key)
            self._next += 1
            self._keys[self._next] = key
            return self._next

    def end_put(self, host: str, number: int, reference: Reference) -> None:
        """A put has returned."""
        with self._lock:
            key = self._keys[number]
            lives = reference.instance not in self._dead
            self._lives[number] = Life(number, key, reference, frozenset({host}), is_certain=lives)
            self._expect(host, key, number if lives else None)

    def begin_delete(self, host: str, key: str) -> None:
        """What the host has under this key is being deleted."""
        with self._lock:
            self._forget_at(host, key)

    def begin_move(self, number: int, source: str, target: str) -> None:
        """A life is being moved."""
        with self._lock:
            life = self._lives[number]
            life.stores |= {target}
            life.changes += 1
            self._expect(source, life.key, None)
            self._expect(target, life.key, None)

    def end_move(self, number: int, target: str) -> None:
        """A move has returned without an error."""
        with self._lock:
            life = self._lives[number]
            life.stores = frozenset({target})
            life.changes += 1

    def store_dies(self, host: str, instance: str) -> None:
        """A store's processes are being killed, with all it has."""
        with self._lock:
            self._dead.add(instance)
            for life in self._lives.values():
                if host in life.stores:
                    life.is_certain = False
                    life.changes += 1
            for at, key in list(self._local):
                if at == host:
                    self._expect(host, key, None)

    def forget(self, key: str) -> None:
        """A key was deleted everywhere, and is not used again."""
        with self._lock:
            for number in [number for number, life in self._lives.items() if life.key == key]:
                del self._lives[number]
            for place in [place for place in self._local if place[1] == key]:
                del self._local[place]

    def _forget_at(self, host: str, key: str) -> None:
        for life in self._lives.values():
            if life.key == key and host in life.stores:
                life.is_certain = False
                life.changes += 1
        self._expect(host, key, None)

    def _expect(self, host: str, key: str, number: int | None) -> None:
        if number is None:
            self._local.pop((host, key), None)
        else:
            self._local[host, key] = number
        self._versions[host, key] = self._versions.get((host, key), 0) + 1

    # --- what is known

    def lives(self, *, certain: bool = False) -> list[Life]:
        """All lives, or those that are certain."""
        with self._lock:
            return [life for life in self._lives.values() if life.is_certain or not certain]

    def knowledge_of(self, life: Life) -> Knowledge:
        """What is known of a life now."""
        with self._lock:
            return Knowledge(life.is_certain, life.stores, life.changes)

    def key_of(self, number: int) -> str | None:
        """The key of a write; None: there was none of that number."""
        with self._lock:
            return self._keys.get(number)

    def local_keys(self, host: str) -> list[str]:
        """The keys under which a host's own store must have something."""
        with self._lock:
            return [key for at, key in self._local if at == host]

    def local(self, host: str, key: str) -> tuple[int | None, int]:
        """The write that a host's own store must have under a key, and how often that has changed."""
        with self._lock:
            return self._local.get((host, key)), self._versions.get((host, key), 0)
