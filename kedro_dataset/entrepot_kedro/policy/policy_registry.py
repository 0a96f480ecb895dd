"""The policy of this process: found once, asked for on every load and save.

The file is named by the environment variable ``ENTREPOT_POLICY``, else by ``ENTREPOT_POLICY`` in the project's
``settings.py``, relative to the project. Without either, :func:`active` only compares two values and returns None, and
no other policy code is imported.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from entrepot_kedro.policy.policy_runtime import PolicyBinding

POLICY_VARIABLE = "ENTREPOT_POLICY"

_CacheKey = tuple["str | None", Any]
_lock = threading.RLock()
_cached: tuple[_CacheKey, PolicyBinding | None] | None = None
_exported = False  # whether this module set POLICY_VARIABLE; guarded by _lock


def active() -> PolicyBinding | None:
    """Return the binding that executes the policy in this process; None: there is no policy.

    Raises:
        PolicyError: it is invalid; the message has file and line.
        InvalidArgument: the policy file does not exist, or the setting is no path.
    """
    key = _cache_key()
    cached = _cached
    if cached is not None and cached[0] == key:
        return cached[1]
    return _load(key)


def reset() -> None:
    """Discard the policy so that it is loaded again, for a new session: the file may have changed."""
    global _cached
    withdraw()
    with _lock:
        _cached = None


def export() -> None:
    """Export the policy's path to child processes through the environment, if only the project's settings name it.

    A worker that is not forked knows no project: Kedro configures one there only if it is configured already.
    """
    global _exported, _cached
    with _lock:
        path = None if POLICY_VARIABLE in os.environ else _policy_path(_cache_key())
        if path is not None and _cached is not None:
            os.environ[POLICY_VARIABLE] = path
            _exported = True
            _cached = (_cache_key(), _cached[1])


def withdraw() -> None:
    """Undo :func:`export`."""
    global _exported, _cached
    with _lock:
        if _exported:
            os.environ.pop(POLICY_VARIABLE, None)
            _exported = False
            if _cached is not None:
                _cached = (_cache_key(), _cached[1])


def _cache_key() -> _CacheKey:
    """Return the values that determine the policy."""
    configured_path = os.environ.get(POLICY_VARIABLE)
    if configured_path is not None:
        return configured_path, None
    # Whoever configures a project has imported this module; a dataset alone should not pay for importing it.
    project = sys.modules.get("kedro.framework.project")
    return None, None if project is None else project.PACKAGE_NAME


def _load(key: _CacheKey) -> PolicyBinding | None:
    global _cached
    with _lock:
        if _cached is not None and _cached[0] == key:
            return _cached[1]
        path = _policy_path(key)
        binding = None
        if path is not None:
            from entrepot_policy.rules.loader import find_policy

            policy = find_policy(path)
            if policy is not None:
                from entrepot_kedro.policy.policy_runtime import PolicyBinding

                binding = PolicyBinding(policy)
        _cached = (key, binding)
        return binding


def _policy_path(key: _CacheKey) -> str | None:
    """Return the path of the policy file; None: none is configured."""
    configured_path, package = key
    if configured_path is not None:
        return configured_path or None
    if package is None:
        return None
    from kedro.framework.project import settings

    setting = getattr(settings, POLICY_VARIABLE, None)
    if not setting:
        return None
    from entrepot_policy.rules.loader import OFF

    from entrepot_kedro.values.sessions import project_folder

    try:
        text = os.fspath(setting)
    except TypeError:
        text = setting
    if not isinstance(text, str):
        from entrepot.errors import InvalidArgument

        raise InvalidArgument(
            f"{POLICY_VARIABLE} in settings.py must be the path of a policy file, or off, "
            f"not {setting!r} ({type(setting).__name__})"
        )
    return text if text.lower() in OFF else str(project_folder() / text)


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_after_fork_in_child)
