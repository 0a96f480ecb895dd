"""Cleaning up after finished runs, for the orchestrator plugins; ``entrepot gc`` is the manual equivalent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from entrepot._cleanup import cleanup
from entrepot._cleanup.cleanup import remove_session as remove_session
from entrepot._daemon.launcher import is_listening
from entrepot._daemon.settings import resolve

if TYPE_CHECKING:
    from entrepot._store.store import Store

__all__ = ["remove_session", "store_answers", "unused_sessions"]


def store_answers(address: str | None) -> bool:
    """Return whether a store listens at the address that ``entrepot.connect(address)`` would use; starts none."""
    return is_listening(resolve(address).address)


def unused_sessions(store: Store, scope: str) -> dict[str, int]:
    """Return a scope's named sessions that nobody has open, with their last use, for :func:`remove_session`."""
    return {
        session["session"]: session["last_used_unix_ns"]
        for session in cleanup.list_sessions(store)
        if session["scope"] == scope and session["session"] and not session["opened_by"]
    }
