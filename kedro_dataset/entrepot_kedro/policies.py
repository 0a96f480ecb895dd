"""The policy of this process: found once, asked for on every load and save.

The file is named by the environment variable ``ENTREPOT_POLICY``, else by ``ENTREPOT_POLICY`` in the project's
``settings.py``, relative to the project. Without either, :func:`current` only compares two values and returns None, and
no other policy code is imported.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from entrepot_kedro.binding import Binding

VARIABLE = "ENTREPOT_POLICY"
# A child of Kedro's own logger, so that a project's logging configuration applies to it too.
logger = logging.getLogger("kedro.entrepot")

_Key = tuple["str | None", Any]
_lock = threading.RLock()
_known: tuple[_Key, Binding | None] | None = None
_exported = False  # whether this module set VARIABLE; guarded by _lock


def current() -> Binding | None:
    """Return the binding that executes the policy in this process; None: there is no policy.

    Raises:
        PolicyError: it is invalid; the message has file and line.
        InvalidArgument: the policy file does not exist.
    """
    key = _key()
    known = _known
    if known is not None and known[0] == key:
        return known[1]
    return _found(key)


def forget() -> None:
    """Discard the policy so that it is loaded again, for a new session: the file may have changed."""
    global _known
    withdraw()
    with _lock:
        _known = None


def export() -> None:
    """Export the policy's path to child processes through the environment, if only the project's settings name it.

    A worker that is not forked knows no project: Kedro configures one there only if it is configured already.
    """
    global _exported, _known
    with _lock:
        path = None if VARIABLE in os.environ else _path(_key())
        if path is not None and _known is not None:
            os.environ[VARIABLE] = path
            _exported = True
            _known = (_key(), _known[1])


def withdraw() -> None:
    """Undo :func:`export`."""
    global _exported, _known
    with _lock:
        if _exported:
            os.environ.pop(VARIABLE, None)
            _exported = False
            if _known is not None:
                _known = (_key(), _known[1])


def _key() -> _Key:
    """Return the values that determine the policy."""
    named = os.environ.get(VARIABLE)
    if named is not None:
        return named, None
    # Whoever configures a project has imported this module; a dataset alone should not pay for importing it.
    project = sys.modules.get("kedro.framework.project")
    return None, None if project is None else project.PACKAGE_NAME


def _found(key: _Key) -> Binding | None:
    global _known
    with _lock:
        if _known is not None and _known[0] == key:
            return _known[1]
        path = _path(key)
        binding = None
        if path is not None:
            from entrepot_io.policy.reading import find_policy

            policy = find_policy(path)
            if policy is not None:
                from entrepot_kedro.binding import Binding

                binding = Binding(policy)
        _known = (key, binding)
        return binding


def _path(key: _Key) -> str | None:
    """Return the path of the policy file; None: none is configured."""
    named, package = key
    if named is not None:
        return named or None
    if package is None:
        return None
    from kedro.framework.project import settings

    setting = getattr(settings, VARIABLE, None)
    if not setting:
        return None
    from entrepot_io.policy.reading import OFF

    from entrepot_kedro.places import project_folder

    text = os.fspath(setting)
    return text if text.lower() in OFF else str(project_folder() / text)


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_after_fork_in_child)
