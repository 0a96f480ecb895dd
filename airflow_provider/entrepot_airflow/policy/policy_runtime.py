"""The policy runtime of this process, created on first use."""

from __future__ import annotations

import os
import threading

from entrepot_policy import PolicyError, PolicyRuntime, find_policy
from entrepot_policy.rules import validation
from entrepot_policy.rules.model import Policy

from entrepot_airflow.configuration import POLICY_VARIABLE, current_settings, default_scope, policy_path
from entrepot_airflow.policy.graph import AirflowGraph
from entrepot_airflow.policy.task_attempts import record_event

_lock = threading.Lock()
_runtimes: dict[tuple[str, str, str | None], PolicyRuntime | None] = {}  # guarded by _lock
_cached_policy: tuple[object, Policy | None] | None = None  # guarded by _lock; (state of the file, policy read from it)


def runtime() -> PolicyRuntime | None:
    """Return this process's policy runtime; None: there is no policy.

    Raises:
        PolicyError: the policy is invalid; the message has file and line.
        InvalidArgument: the policy file does not exist.
    """
    path = policy_path()
    if not path:
        return None
    settings = current_settings()
    scope = settings.scope or default_scope()
    key = (path, scope, settings.address)
    with _lock:
        if key not in _runtimes:
            _runtimes[key] = _create_runtime(path, scope, settings.address)
        return _runtimes[key]


def _create_runtime(path: str, scope: str, address: str | None) -> PolicyRuntime | None:
    created = PolicyRuntime.of_environment(
        scope=scope, path=path, address=address, graph=AirflowGraph(), shared_reruns=True
    )
    if created is not None:
        created.log.watch(record_event)
    return created


def validated_policy() -> Policy | None:
    """Read and validate the policy; None: there is none. For processes that only inspect it, for each DAG and task.

    Cached; read again when the file, or the environment variables that override it, have changed.

    Raises:
        PolicyError: it is invalid; the message has file and line.
        InvalidArgument: the policy file does not exist.
    """
    global _cached_policy
    path = policy_path()
    if not path:
        return None
    overrides = tuple(
        sorted(variable for variable in os.environ.items() if variable[0].startswith(f"{POLICY_VARIABLE}__"))
    )
    try:
        file_status = os.stat(path)
        state = (path, file_status.st_ino, file_status.st_mtime_ns, file_status.st_size, overrides)
    except OSError:
        return find_policy(path)  # raises the proper error
    with _lock:
        cached = _cached_policy
    if cached is None or cached[0] != state:
        cached = (state, find_policy(path))
        with _lock:
            _cached_policy = cached
    return cached[1]


def probe_targets(policy: Policy) -> None:
    """Probe the targets, so that unwritable ones are reported when a run begins.

    Raises:
        PolicyError: a rule has no writable target; the message has file and line.
    """
    if not policy.enabled:
        return
    problems = {target.template: validation.probe_targets([target]) for target in policy.all_targets()}
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
