"""One connection, used by every store that this process has at one address."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from entrepot import _core


@dataclass(slots=True)
class SharedClient:
    """A client and how many stores use it; the last one closes it."""

    raw: _core.Client
    users: int = 1
    _lock: threading.Lock = field(default_factory=threading.Lock)
    __weakref__: Any = field(init=False, repr=False, compare=False)

    def acquire(self) -> bool:
        """One user more; False if it is closed."""
        with self._lock:
            if self.users == 0:
                return False
            self.users += 1
            return True

    def release(self, opened: tuple[str, str] | None) -> None:
        """One user less, who had this session of this scope open."""
        with self._lock:
            self.users -= 1
            last = self.users == 0
        if last:
            self.raw.close()
        elif opened is not None:
            self.raw.close_session(*opened)
