"""The matrix of faults, orchestrators and policies, with the expected outcomes.

Faults are caused by the pipeline's own tasks, in whichever process the orchestrator runs them: ``strike`` destroys what
``join`` is about to read, and ``join`` dies or raises if the fault is its own.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from entrepot import ObjectID, Store

WATCHDOG_SECONDS = 90.0

# Expected runs per task without a fault: each task once.
ONCE = {"numbers": 1, "left": 1, "right": 1, "strike": 1, "join": 1, "report": 1}


@dataclass(frozen=True)
class Outcome:
    """Expected outcome of a run under a fault and a policy.

    Attributes:
        runs: how often each task begins.
        reason: text in the run's failure if the policy gives up; "": the run finishes with the right answer.
        events: kinds of events that must be in the event log.
    """

    runs: dict[str, int] = field(default_factory=lambda: dict(ONCE))
    reason: str = ""
    events: tuple[str, ...] = ()


def with_reruns(**extra_runs: int) -> dict[str, int]:
    """Every task once, and these more often."""
    return ONCE | {task: 1 + count for task, count in extra_runs.items()}


REASON = "ask the data team"

# Policies. {target} is a directory, {small} one on a full disk.
POLICIES = {
    "checkpoints": """
version: 1
checkpoint:
  target: "{target}/{{pipeline}}/{{run}}"
  rules:
    - {{match: {{task: ["left", "right", "*.left", "*.right"]}}}}
failover:
  - on: [object_lost, instance_lost]
    do: [reload_checkpoint, rerun_upstream, {{fail: {{reason: "ask the data team"}}}}]
  - {{on: checkpoint_damaged, do: [rerun_upstream, fail]}}
  - {{on: daemon_lost, do: [{{retry: {{attempts: 20, delay: 200ms}}}}]}}
  - {{on: task_failed, do: [{{retry: {{attempts: 1, delay: 100ms}}}}]}}
""",
    "rerun": """
version: 1
failover:
  - {{on: [object_lost, instance_lost], do: [rerun_upstream, {{fail: {{reason: "ask the data team"}}}}]}}
  - {{on: daemon_lost, do: [{{retry: {{attempts: 20, delay: 200ms}}}}]}}
  - {{on: task_failed, do: [{{retry: {{attempts: 1, delay: 100ms}}}}]}}
""",
    "fail": """
version: 1
failover:
  - {{on: [object_lost, instance_lost], do: [{{fail: {{reason: "ask the data team"}}}}]}}
  - {{on: daemon_lost, do: [{{retry: {{attempts: 20, delay: 200ms}}}}]}}
  - {{on: task_failed, do: [{{fail: {{reason: "ask the data team"}}}}]}}
""",
    "memory": """
version: 1
memory:
  rules: [{{match: {{task: ["left", "*.left"]}}, recompute: auto}}]
failover:
  - {{on: object_dropped, do: [rerun_upstream, fail]}}
  - {{on: daemon_lost, do: [{{retry: {{attempts: 20, delay: 200ms}}}}]}}
""",
    "disk_full": """
version: 1
targets:
  small: {{url: "{small}/{{run}}", fallback: large}}
  large: {{url: "{target}/{{run}}"}}
checkpoint:
  target: small
  rules: [{{match: {{task: ["left", "right", "*.left", "*.right"]}}}}]
failover:
  - {{on: [object_lost, instance_lost], do: [reload_checkpoint, {{fail: {{reason: "ask the data team"}}}}]}}
  - {{on: daemon_lost, do: [{{retry: {{attempts: 20, delay: 200ms}}}}]}}
""",
}

# The matrix: (fault, policy) to expected outcome. Attempts of `join` itself are included.
MATRIX: dict[tuple[str, str], Outcome] = {
    ("none", "checkpoints"): Outcome(),
    ("task_killed", "rerun"): Outcome(runs=with_reruns(join=1)),
    ("task_killed_on_last_try", "rerun"): Outcome(),  # the run fails; a user then reruns only `join`
    ("exception", "rerun"): Outcome(runs=with_reruns(join=1)),
    ("exception", "fail"): Outcome(reason=REASON),
    ("daemon_killed", "rerun"): Outcome(),
    ("store_killed", "checkpoints"): Outcome(events=("reloaded",)),
    ("store_killed", "rerun"): Outcome(runs=with_reruns(numbers=1, left=1, right=1)),
    ("store_killed", "fail"): Outcome(reason=REASON),
    ("private_killed", "checkpoints"): Outcome(events=("reloaded",)),
    ("private_killed", "rerun"): Outcome(runs=with_reruns(numbers=1, left=1, right=1)),
    ("object_lost", "checkpoints"): Outcome(events=("reloaded",)),
    ("object_lost", "rerun"): Outcome(runs=with_reruns(left=1)),
    ("object_lost", "fail"): Outcome(reason=REASON),
    ("checkpoint_damaged", "checkpoints"): Outcome(runs=with_reruns(left=1)),
    ("disk_full", "disk_full"): Outcome(events=("reloaded",)),
    ("object_dropped", "memory"): Outcome(
        runs=with_reruns(left=1), events=("droppable", "object_dropped", "rerun_planned")
    ),
}
# Short form: each fault once, with the most telling policy.
SHORT_MATRIX = (
    ("task_killed", "rerun"),
    ("task_killed_on_last_try", "rerun"),
    ("exception", "rerun"),
    ("exception", "fail"),
    ("daemon_killed", "rerun"),
    ("store_killed", "checkpoints"),
    ("store_killed", "rerun"),
    ("private_killed", "checkpoints"),
    ("object_lost", "rerun"),
    ("object_lost", "fail"),
    ("checkpoint_damaged", "checkpoints"),
    ("disk_full", "disk_full"),
    ("object_dropped", "memory"),
)


def prepare_case(
    folder: Path, fault: str, policy: str, address: str, target: Path, full_disk: Path | None = None
) -> Path:
    """Write what a run needs into its directory; return the policy file.

    Args:
        folder: directory of the run; the environment variable FAILOVER_FOLDER names it.
        fault: as in MATRIX.
        policy: as in POLICIES.
        address: address of the store; "": the private store of the user who runs it (:func:`private_store_variables`).
        target: directory for checkpoints.
        full_disk: directory on a full disk; only needed by the policy ``disk_full``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    settings = {"fault": fault, "address": address, "target": str(target), "small": str(full_disk)}
    (folder / "fault.json").write_text(json.dumps(settings))
    file = folder / "policy.yaml"
    file.write_text(POLICIES[policy].format(target=target, small=full_disk))
    return file


def inject(folder: Path) -> None:
    """Cause the fault that is due before ``join`` reads its inputs."""
    settings = json.loads((folder / "fault.json").read_text())
    fault, address = settings["fault"], settings["address"]
    if fault == "daemon_killed":
        pids = store_pids(address)
        os.kill(pids[0], signal.SIGKILL)
    elif fault == "store_killed":
        kill_store(folder, address)
    elif fault == "private_killed":
        kill_private_store()
    elif fault == "object_lost":
        discard(address, "left")
    elif fault == "object_dropped":
        force_drop(address)
    elif fault in ("checkpoint_damaged", "disk_full"):
        if fault == "checkpoint_damaged":
            damage_checkpoints(Path(settings["target"]))
        discard(address, "left")


def fail_join(folder: Path, attempt: int) -> None:
    """Cause the faults of the task itself. ``attempt`` counts from 1."""
    settings = json.loads((folder / "fault.json").read_text())
    fault = settings["fault"]
    if (fault == "task_killed" and attempt == 1) or (
        fault == "task_killed_on_last_try" and not _has_stopped_killing(folder)
    ):
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "task_and_daemon_killed" and attempt == 1:
        os.kill(store_pids(settings["address"])[0], signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "exception" and attempt == 1:
        raise RuntimeError("join fails as it was told to")


def stop_killing(folder: Path) -> None:
    """Stop killing ``join`` from now on."""
    (folder / "healed").touch()


def _has_stopped_killing(folder: Path) -> bool:
    return (folder / "healed").exists()


def store_pids(address: str) -> tuple[int, int]:
    """PIDs of a store's daemon and keeper."""
    import entrepot

    with entrepot.connect(address, scope="faults") as store:
        status = store.status()
        return int(status["pid"]), int(status["keeper_pid"])


def kill_store(folder: Path, address: str) -> None:
    """Kill keeper and daemon with SIGKILL, and start an empty store at the same address."""
    _kill_processes(address)
    start_store(folder, address)


def private_store_variables(folder: Path) -> dict[str, str]:
    """Environment variables of a run with a private store in a directory with a short path; starts no store."""
    run, state = folder / "run", folder / "state"
    for path in (run, state):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return {
        "XDG_RUNTIME_DIR": str(run),
        "XDG_STATE_HOME": str(state),
        "ENTREPOT_PRIVATE_SIZE": "256MiB",
        "ENTREPOT_PRIVATE_IDLE_EXIT_SECONDS": "600",
    }


def kill_private_store() -> None:
    """Kill keeper and daemon of this user's private store with SIGKILL. The next client that needs one starts it."""
    from entrepot._daemon import settings

    _kill_processes(settings.private_address())


def stop_private_store(folder: Path) -> None:
    """Stop the private store of :func:`private_store_variables`, if it runs."""
    from entrepot._daemon import launcher

    for socket_file in (folder / "run").rglob("*.sock"):
        for pid in launcher.listening_pids(f"unix://{socket_file}"):
            launcher.stop(pid)


def _kill_processes(address: str) -> None:
    daemon, keeper = store_pids(address)
    for number in (signal.SIGSTOP, signal.SIGKILL):  # so that neither sees the other die and restarts it
        os.kill(keeper, number)
        os.kill(daemon, number)
    _wait_until(lambda: not _is_listening(address), f"the end of the store at {address}")


def start_store(folder: Path, address: str) -> None:
    """Start a store that outlives this process; record its keeper's PID for :func:`stop_stores`."""
    command = [sys.executable, "-m", "entrepot.daemon_main", "--address", address, "--size", "256MiB"]
    command += ["--spill-path", "none"]
    with (folder / "entrepotd.log").open("ab") as log:
        started = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, close_fds=True
        )
    with (folder / "keepers").open("a") as file:
        file.write(f"{started.pid}\n")
    _wait_until(lambda: _is_listening(address), f"a store at {address}: {(folder / 'entrepotd.log').read_text()}")


def stop_stores(folder: Path) -> None:
    """Stop the stores started by :func:`start_store` that have not been killed."""
    for pid in (folder / "keepers").read_text().split() if (folder / "keepers").exists() else []:
        command = Path(f"/proc/{pid}/cmdline")
        if command.exists() and b"entrepot" in command.read_bytes():
            os.kill(int(pid), signal.SIGTERM)


def discard(address: str, task: str) -> None:
    """Lose a task's output: discard its object's bytes without deleting the object."""
    import entrepot
    from entrepot import raw_objects

    discarded = 0
    for scope, session in sessions(address):
        with entrepot.connect(address, scope=scope, session=session) as store:
            for info in list(store.list()):
                lineage = any(name.startswith("entrepot.") for name in info.names)
                if not lineage and _producer_of(store, info.id) == task:
                    raw_objects.discard(store, info.id)
                    discarded += 1
    if not discarded:
        raise RuntimeError(f"no object of the task {task!r} in the store at {address}")


def force_drop(address: str) -> None:
    """Make memory short until the store drops what it may, then release that memory."""
    import entrepot
    from entrepot.errors import StoreFull

    with entrepot.connect(address, scope="faults") as store:
        allocations = []
        deadline = time.monotonic() + WATCHDOG_SECONDS
        while not store.status()["drops"]:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the store at {address} dropped nothing in {WATCHDOG_SECONDS:g} s")
            with suppress(StoreFull):  # memory is not ready yet, or is fragmented
                allocations.append(store._raw().create(4 << 20, 0.2))  # pyright: ignore[reportPrivateUsage]


def sessions(address: str) -> list[tuple[str, str]]:
    """All sessions of a store, as (scope, name)."""
    import entrepot

    with entrepot.connect(address, scope="faults") as store:
        listing = json.loads(store._raw().sessions())["sessions"]  # pyright: ignore[reportPrivateUsage]
    return [(entry["scope"], entry["session"]) for entry in listing if entry["scope"] != "faults"]


def _producer_of(store: Store, oid: ObjectID) -> str:
    """Last part of the name of the task that produced an object, according to the store's lineage."""
    from entrepot_policy.state import lineage
    from entrepot_policy.state.lineage import ObjectRef

    record = lineage.read(store, ObjectRef(store.session_name, oid))
    return "" if record is None else record.task.name.rpartition(".")[2]


def damage_checkpoints(target: Path) -> None:
    """Flip a bit in the middle of every payload file below a checkpoint directory."""
    changed = 0
    for path in sorted(target.rglob("*")):
        if path.is_file() and path.stat().st_size >= 100_000:
            with path.open("r+b") as file:
                file.seek(path.stat().st_size // 2)
                byte = file.read(1)
                file.seek(-1, os.SEEK_CUR)
                file.write(bytes((byte[0] ^ 1,)))
            changed += 1
    if not changed:
        raise RuntimeError(f"there is no checkpoint below {target}")


def _is_listening(address: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(address.removeprefix("unix://"))
        except OSError:
            return False
        return True


def _wait_until(condition: Callable[[], bool], description: str) -> None:
    deadline = time.monotonic() + WATCHDOG_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"gave up waiting for {description} after {WATCHDOG_SECONDS:g} s")
        time.sleep(0.005)
