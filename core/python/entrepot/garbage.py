"""Cleaning up after finished runs, for the orchestrator plugins; ``entrepot gc`` is the manual equivalent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from entrepot import _garbage
from entrepot._garbage import remove_session as remove_session
from entrepot._launcher import answers
from entrepot._settings import resolve

if TYPE_CHECKING:
    from entrepot._store import Store

__all__ = ["remove_session", "store_answers", "unused_sessions"]


def store_answers(address: str | None) -> bool:
    """Return whether a store listens at the address that ``entrepot.connect(address)`` would use; starts none."""
    return answers(resolve(address).address)


def unused_sessions(store: Store, scope: str) -> dict[str, int]:
    """Return a scope's named sessions that nobody has open, with their last use, for :func:`remove_session`."""
    return {
        one["session"]: one["last_used_unix_ns"]
        for one in _garbage.sessions(store)
        if one["scope"] == scope and one["session"] and not one["opened_by"]
    }
