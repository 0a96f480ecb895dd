"""The policy runtime of this process, created on first use."""

from __future__ import annotations

import os
import threading

from entrepot_io.policy import PolicyError, PolicyRuntime, find_policy
from entrepot_io.policy.checks import probe
from entrepot_io.policy.model import Policy

from entrepot_airflow.configuration import POLICY_VARIABLE, default_scope, policy_path, settings

_lock = threading.Lock()
_runtimes: dict[tuple[str, str, str | None], PolicyRuntime | None] = {}  # guarded by _lock
_checked: tuple[object, Policy | None] | None = None  # guarded by _lock; (state of the file, policy read from it)


def runtime() -> PolicyRuntime | None:
    """Return this process's policy runtime; None: there is no policy.

    Raises:
        PolicyError: the policy is invalid; the message has file and line.
        InvalidArgument: the policy file does not exist.
    """
    path = policy_path()
    if not path:
        return None
    now = settings()
    scope = now.scope or default_scope()
    key = (path, scope, now.address)
    with _lock:
        if key not in _runtimes:
            _runtimes[key] = _made(path, scope, now.address)
        return _runtimes[key]


def _made(path: str, scope: str, address: str | None) -> PolicyRuntime | None:
    from entrepot_airflow.attempts import tell
    from entrepot_airflow.graph import AirflowGraph

    found = PolicyRuntime.of_environment(
        scope=scope, path=path, address=address, graph=AirflowGraph(), shared_reruns=True
    )
    if found is not None:
        found.log.watch(tell)
    return found


def checked() -> Policy | None:
    """Read and validate the policy; None: there is none. For processes that only inspect it, for each DAG and task.

    Cached; read again when the file, or the environment variables that override it, have changed.

    Raises:
        PolicyError: it is invalid; the message has file and line.
        InvalidArgument: the policy file does not exist.
    """
    global _checked
    path = policy_path()
    if not path:
        return None
    overrides = tuple(sorted(one for one in os.environ.items() if one[0].startswith(f"{POLICY_VARIABLE}__")))
    try:
        there = os.stat(path)
        state = (path, there.st_ino, there.st_mtime_ns, there.st_size, overrides)
    except OSError:
        return find_policy(path)  # raises the proper error
    with _lock:
        known = _checked
    if known is None or known[0] != state:
        known = (state, find_policy(path))
        with _lock:
            _checked = known
    return known[1]


def probe_targets(policy: Policy) -> None:
    """Probe the targets, so that unwritable ones are reported when a run begins.

    Raises:
        PolicyError: a rule has no writable target; the message has file and line.
    """
    if not policy.enabled:
        return
    problems = {target.template: probe([target]) for target in policy.all_targets()}
    fatal = {
        problem
        for rule in policy.checkpoints
        if rule.targets and all(problems[target.template] for target in rule.targets)
        for target in rule.targets
        for problem in problems[target.template]
    }
    if fatal:
        raise PolicyError(sorted(fatal, key=str))


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork_in_child)
