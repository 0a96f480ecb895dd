"""Client connection shared by all stores of this process at one address."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from entrepot import _core


@dataclass(slots=True)
class SharedClient:
    """A client with a reference count; releasing the last reference closes it."""

    raw: _core.Client
    references: int = 1
    _lock: threading.Lock = field(default_factory=threading.Lock)
    __weakref__: Any = field(init=False, repr=False, compare=False)

    def acquire(self) -> bool:
        """Add a reference; return False if the client is already closed."""
        with self._lock:
            if self.references == 0:
                return False
            self.references += 1
            return True

    def release(self, session: tuple[str, str] | None) -> None:
        """Drop a reference; ``session`` is the scope and session that its user had open, if any."""
        with self._lock:
            self.references -= 1
            last = self.references == 0
        if last:
            self.raw.close()
        elif session is not None:
            self.raw.close_session(*session)
