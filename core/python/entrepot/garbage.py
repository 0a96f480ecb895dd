"""Giving back what runs left, for packages that hand values over for a host; ``entrepot gc`` does it by hand."""

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
    """Whether a store listens where ``entrepot.connect(address)`` would look; none is started."""
    return answers(resolve(address).address)


def unused_sessions(store: Store, scope: str) -> dict[str, int]:
    """The named sessions of a scope that nobody has open; with their last use, for :func:`remove_session`."""
    return {
        one["session"]: one["last_used_unix_ns"]
        for one in _garbage.sessions(store)
        if one["scope"] == scope and one["session"] and not one["opened_by"]
    }
