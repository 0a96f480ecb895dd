"""What all workers share."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from random_faults.disturbances import Disturbances
from random_faults.hosts import ClusterHost
from random_faults.model import Model
from random_faults.report import Report

KEYS_AT_ONCE = 30


class Keys:
    """The keys that are in use. Thread-safe; all workers choose from the same ones."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._first = 0  # guarded by _lock

    def choose(self, rng: random.Random) -> str:
        """One of them."""
        with self._lock:
            return f"key-{self._first + rng.randrange(KEYS_AT_ONCE)}"

    def all(self) -> list[str]:
        """All of them."""
        with self._lock:
            return [f"key-{self._first + number}" for number in range(KEYS_AT_ONCE)]

    def renew(self) -> None:
        """Use others from now on."""
        with self._lock:
            self._first += KEYS_AT_ONCE


@dataclass(frozen=True, slots=True)
class Shared:
    """What all workers share."""

    hosts: Sequence[ClusterHost]
    model: Model
    report: Report
    disturbances: Disturbances
    keys: Keys

    def check_owner(self, where: str, key: str, number: int) -> None:
        """What was read under a key must have been written under it."""
        owner = self.model.key_of(number)
        if owner != key:
            self.report.breaks(f"{where}: write {number}, of {owner}, was read under {key}")
