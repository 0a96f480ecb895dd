"""The registration under which this instance publishes; when the directory forgets it, another one follows.

none ──set()──▶ present ──set()──▶ present, another one
                   └──forgotten()──▶ none, and awaited: membership registers again at once ──set()──▶ present
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from entrepot_cluster.directory.registration import Registration


class CurrentRegistration:
    """The registration of this instance. Thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._registration: Registration | None = None  # guarded by _changed
        self._is_awaited = False  # guarded by _changed
        self._is_news = False  # that one was, or may be, forgotten; guarded by _changed
        self._interrupted = False  # guarded by _changed

    def get(self) -> Registration | None:
        """Return the present one; None: there is none at the moment."""
        with self._changed:
            return self._registration

    @property
    def is_awaited(self) -> bool:
        """Whether the directory has forgotten the last one, and another one will follow."""
        with self._changed:
            return self._is_awaited

    def set(self, registration: Registration) -> None:
        """Use this one from now on."""
        with self._changed:
            self._registration = registration
            self._is_awaited = False
            self._changed.notify_all()

    def forgotten(self, registration: Registration) -> None:
        """Note that the directory does not know this one any more."""
        with self._changed:
            if self._registration is registration:
                self._registration = None
                self._is_awaited = self._is_news = True
                self._changed.notify_all()

    def suspect(self) -> None:
        """End :meth:`wait_until_forgotten`: the directory seems not to know this one any more."""
        with self._changed:
            self._is_news = True
            self._changed.notify_all()

    def wait(self, seconds: float) -> bool:
        """Wait until there is one; False: there is none after that time."""
        with self._changed:
            return self._changed.wait_for(lambda: self._registration is not None, seconds)

    def wait_until_forgotten(self, seconds: float) -> bool:
        """Wait for that long, but only until one is forgotten or suspected to be, or :meth:`interrupt`; for one thread.

        Returns:
            whether another one is awaited.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._interrupted or self._is_news, seconds)
            self._is_news = False
            return self._is_awaited

    def interrupt(self) -> None:
        """End :meth:`wait_until_forgotten`, now and in future."""
        with self._changed:
            self._interrupted = True
            self._changed.notify_all()
