"""Cleaning up after finished runs, for the orchestrator plugins; ``entrepot gc`` is the manual equivalent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from entrepot._cleanup import cleanup
from entrepot._cleanup.cleanup import remove_session as remove_session
from entrepot._daemon.launcher import is_listening
from entrepot._daemon.settings import resolve

if TYPE_CHECKING:
    from entrepot._store.store import Store

__all__ = ["UnusedSession", "remove_session", "store_answers", "unused_session_sizes", "unused_sessions"]


@dataclass(frozen=True, slots=True)
class UnusedSession:
    """A named session that nobody has open.

    Attributes:
        last_used: its last use, in nanoseconds since 1970, for :func:`remove_session`.
        objects: number of objects in it.
        nbytes: their payload in bytes, without small values stored inline in metadata.
    """

    last_used: int
    objects: int
    nbytes: int


def store_answers(address: str | None) -> bool:
    """Return whether a store listens at the address that ``entrepot.connect(address)`` would use; starts none."""
    return is_listening(resolve(address).address)


def unused_session_sizes(store: Store, scope: str) -> dict[str, UnusedSession]:
    """Return a scope's named sessions that nobody has open, by name, as the daemon reports them: lists no objects."""
    return {
        session["session"]: UnusedSession(session["last_used_unix_ns"], session["objects"], session["nbytes"])
        for session in cleanup.list_sessions(store)
        if session["scope"] == scope and session["session"] and not session["opened_by"]
    }


def unused_sessions(store: Store, scope: str) -> dict[str, int]:
    """Return a scope's named sessions that nobody has open, with their last use, for :func:`remove_session`."""
    return {name: session.last_used for name, session in unused_session_sizes(store, scope).items()}
