"""The tests' own control groups: the names and contents of files, of both versions, and freezing a real process."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from control_groups import ControlGroup, Hierarchy, NoControlGroup, control_group, hierarchies
from suspension import state_of


def fake_mounts(folder: Path, *lines: str) -> Path:
    file = folder / "mounts"
    file.write_text("".join(line.format(folder=folder) + "\n" for line in lines))
    return file


def test_version_2_is_used_where_only_it_is_mounted(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu memory pids\n")
    mounts = fake_mounts(tmp_path, "proc /proc proc rw 0 0", "cgroup2 {folder} cgroup2 rw,nosuid 0 0")
    for controller in ("cpu", "memory", "pids", "freezer"):
        assert hierarchies(controller, mounts) == [Hierarchy(tmp_path, 2, controller)]
    assert hierarchies("blkio", mounts) == []


def test_version_1_is_used_for_controllers_that_it_has(tmp_path: Path) -> None:
    (tmp_path / "unified").mkdir()
    (tmp_path / "unified" / "cgroup.controllers").write_text("hugetlb\n")
    mounts = fake_mounts(
        tmp_path,
        "cgroup2 {folder}/unified cgroup2 rw 0 0",
        "cgroup {folder}/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0",
        "cgroup {folder}/freezer cgroup rw,freezer 0 0",
    )
    assert hierarchies("cpu", mounts) == [Hierarchy(tmp_path / "cpu,cpuacct", 1, "cpu")]
    assert [hierarchy.version for hierarchy in hierarchies("freezer", mounts)] == [1, 2]
    assert hierarchies("memory", mounts) == []


@pytest.mark.parametrize(("version", "expected"), [(1, "cpu/job"), (2, "slice/scope")])
def test_a_processs_group_is_found(tmp_path: Path, version: int, expected: str) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cgroup").write_text("3:cpu,cpuacct:/cpu/job\n2:freezer:/\n0::/slice/scope\n")
    hierarchy = Hierarchy(tmp_path / "mount", version, "cpu")
    (tmp_path / "mount").mkdir()
    assert hierarchy.group_of(7, tmp_path) == tmp_path / "mount", "it is not visible from here"
    (tmp_path / "mount" / expected).mkdir(parents=True)
    assert hierarchy.group_of(7, tmp_path) == tmp_path / "mount" / expected


def test_version_2_enables_a_controller_below_the_parent(tmp_path: Path) -> None:
    switch = tmp_path / "cgroup.subtree_control"
    switch.write_text("memory\n")
    Hierarchy(tmp_path, 2, "memory").enable(tmp_path)
    Hierarchy(tmp_path, 2, "freezer").enable(tmp_path)
    assert switch.read_text() == "memory\n", "nothing had to be enabled"
    Hierarchy(tmp_path, 2, "cpu").enable(tmp_path)
    assert switch.read_text() == "+cpu"


ACTIONS: dict[str, Callable[[ControlGroup], None]] = {
    "add": lambda group: group.add(42),
    "freeze": ControlGroup.freeze,
    "thaw": ControlGroup.thaw,
    "limit_cpu": lambda group: group.limit_cpu(1),
    "limit_processes": lambda group: group.limit_processes(3),
    "unlimited_processes": lambda group: group.limit_processes(None),
    "never_kill": ControlGroup.never_kill,
    "limit_memory": lambda group: group.limit_memory(1 << 20),
    "unlimited_memory": lambda group: group.limit_memory(None),
    "kill_above": lambda group: group.kill_above(1 << 20),
    "kill_nobody": lambda group: group.kill_above(None),
}
FILES = {
    (1, "add"): {"cgroup.procs": "42"},
    (1, "freeze"): {"freezer.state": "FROZEN"},
    (1, "thaw"): {"freezer.state": "THAWED"},
    (1, "limit_cpu"): {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "1000"},
    (1, "limit_processes"): {"pids.max": "3"},
    (1, "unlimited_processes"): {"pids.max": "max"},
    (1, "never_kill"): {"memory.oom_control": "1"},
    (1, "limit_memory"): {"memory.limit_in_bytes": "1048576"},
    (1, "unlimited_memory"): {"memory.limit_in_bytes": "-1"},
    (1, "kill_above"): {"memory.limit_in_bytes": "1048576"},
    (1, "kill_nobody"): {"memory.limit_in_bytes": "-1"},
    (2, "add"): {"cgroup.procs": "42"},
    (2, "freeze"): {"cgroup.freeze": "1"},
    (2, "thaw"): {"cgroup.freeze": "0"},
    (2, "limit_cpu"): {"cpu.max": "1000 100000"},
    (2, "limit_processes"): {"pids.max": "3"},
    (2, "unlimited_processes"): {"pids.max": "max"},
    (2, "never_kill"): {},
    (2, "limit_memory"): {"memory.high": "1048576"},
    (2, "unlimited_memory"): {"memory.high": "max"},
    (2, "kill_above"): {"memory.max": "1048576"},
    (2, "kill_nobody"): {"memory.max": "max"},
}


@pytest.mark.parametrize(("version", "action"), FILES)
def test_what_is_written(tmp_path: Path, version: int, action: str) -> None:
    ACTIONS[action](ControlGroup(tmp_path, version))
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == FILES[version, action]


def test_what_is_read(tmp_path: Path) -> None:
    for name, text in {
        "freezer.state": "FREEZING\n",
        "memory.usage_in_bytes": "4096\n",
        "memory.failcnt": "2\n",
        "cgroup.events": "populated 1\nfrozen 1\n",
        "memory.current": "8192\n",
        "memory.events": "low 0\nhigh 5\nmax 0\noom 0\noom_kill 0\n",
    }.items():
        (tmp_path / name).write_text(text)
    first, second = ControlGroup(tmp_path, 1), ControlGroup(tmp_path, 2)
    assert (first.is_frozen(), first.memory_used(), first.memory_limit_hits()) == (False, 4096, 2)
    assert (second.is_frozen(), second.memory_used(), second.memory_limit_hits()) == (True, 8192, 5)
    (tmp_path / "freezer.state").write_text("FROZEN\n")
    assert first.is_frozen()


@pytest.mark.parametrize("version", [1, 2])
def test_a_process_is_frozen_and_goes_on(wait_until: Callable[..., None], version: int) -> None:
    """Version 2 freezes wherever it is mounted, also beside version 1."""
    # With a handler: in version 2, a signal that ends a process ends it even while it is frozen.
    code = "import signal, sys; signal.signal(15, lambda *_: sys.exit(7)); print('ready', flush=True); input()"
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        with control_group("freezer", "freeze", version) as group:
            group.add(process.pid)
            assert str(process.pid) in group.procs.read_text().split()
            group.freeze()
            wait_until(group.is_frozen, "the group to freeze")
            process.send_signal(signal.SIGTERM)  # it cannot act on it
            assert process.poll() is None
            assert state_of(process.pid) != "Z"
            group.thaw()
            assert process.wait(30) == 7
        assert not group.path.exists()
    except NoControlGroup as error:
        pytest.skip(f"no control group can be made here: {error}")
    finally:
        process.kill()
        process.communicate()
