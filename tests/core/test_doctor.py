"""`entrepot doctor --fix-hints` on copies of other machines' files: containers, WSL, limits; and on other systems."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from entrepot import EntrepotError, UnsupportedPlatform
from entrepot._cli import doctor
from entrepot._cli.machine_checks.check import Check
from entrepot._cli.machine_checks.machine import Machine
from entrepot._cli.machine_checks.probes import probe_memfd, probe_pidfd
from entrepot._cli.machine_checks.surroundings import surroundings
from entrepot.cli import main
from entrepot.platform_support import require_supported, unsupported_reason

MEMINFO = "MemTotal: 16000000 kB\nMemFree: 1000 kB\nMemAvailable: 8000000 kB\nHugePages_Total: 0\n"
LIMITS = (
    "Limit                     Soft Limit           Hard Limit           Units     \n"
    "Max file size             {size}            unlimited            bytes     \n"
    "Max open files            {files}                 524288               files     \n"
)
DISK = "20 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"

Files = dict[str, str]
NewMachine = Callable[..., Machine]


@pytest.fixture
def machine(tmp_path: Path) -> NewMachine:
    """A function that writes the files of a machine without limits, and some other ones, and returns it."""

    def create(files: Files | None = None, environment: Files | None = None) -> Machine:
        everything = {
            "proc/meminfo": MEMINFO,
            "proc/sys/kernel/osrelease": "6.1.0-18-amd64\n",
            "proc/self/limits": LIMITS.format(size="unlimited", files="1048576"),
            "proc/self/status": "Name:\tpython\nSeccomp:\t0\nSeccomp_filters:\t0\n",
            "proc/self/mountinfo": DISK,
            "proc/self/cgroup": "0::/\n",
        } | (files or {})
        for name, text in everything.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return Machine(tmp_path, "Linux", environment or {})

    return create


def checks(machine: Machine) -> dict[str, Check]:
    results = list(surroundings(machine))
    by_topic = {result.topic: result for result in results}
    assert len(by_topic) == len(results)
    return by_topic


def test_a_plain_machine_has_nothing_to_fix(machine: NewMachine) -> None:
    results = checks(machine())
    assert {topic: check.level for topic, check in results.items()} == {"memory": "ok", "descriptors": "ok"}
    assert results["memory"].text == "15.3 GiB total, 7.6 GiB available"


@pytest.mark.parametrize(
    ("files", "environment", "engine"),
    [
        ({".dockerenv": ""}, {}, "docker"),
        ({"run/.containerenv": ""}, {}, "podman"),
        ({".dockerenv": ""}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubernetes"),
        ({}, {"container": "lxc"}, "container"),
        ({}, {}, ""),
    ],
)
def test_the_container_engine_is_recognized(machine: NewMachine, files: Files, environment: Files, engine: str) -> None:
    here = machine(files, environment)
    assert here.engine() == engine
    check = checks(here).get("container")
    assert (check is None) == (engine == "")
    assert check is None or check.hint


MOUNTS = (
    "1 0 0:50 / / rw,relatime - overlay overlay rw,lowerdir=/a:/b\n"
    "2 1 0:51 / /dev rw,nosuid - tmpfs tmpfs rw,size=65536k,mode=755\n"
    "3 2 0:52 / /dev/shm rw,nosuid - tmpfs shm rw,size=65536k\n"
)


@pytest.mark.parametrize(
    ("engine", "mark", "shm", "spill"),
    [
        ("docker", {".dockerenv": ""}, "docker run --shm-size 1g", "docker run -v entrepot-spill:/var/tmp"),
        ("podman", {"run/.containerenv": ""}, "podman run --shm-size 1g", "podman run -v entrepot-spill:/var/tmp"),
        ("kubernetes", {}, "emptyDir: {medium: Memory", "emptyDir: {}"),
    ],
)
def test_a_container_as_its_engine_makes_it(
    machine: NewMachine, engine: str, mark: Files, shm: str, spill: str
) -> None:
    environment = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"} if engine == "kubernetes" else {}
    results = checks(
        machine(
            {
                "proc/self/mountinfo": MOUNTS,
                "proc/self/limits": LIMITS.format(size="unlimited", files="1024"),
                "proc/self/status": "Seccomp:\t2\n",
                "sys/fs/cgroup/memory.max": "536870912\n",
                "sys/fs/cgroup/pids.max": "32\n",
            }
            | mark,
            environment,
        )
    )
    notes = {topic: check for topic, check in results.items() if check.level == "note"}
    assert set(notes) == {"memory", "descriptors", "processes", "/dev/shm", "disk"}
    assert all(check.hint for check in notes.values())
    assert "control group limit 512.0 MiB" in notes["memory"].text
    assert "which is 153.6 MiB" in notes["memory"].text
    assert notes["descriptors"].text.startswith("limit 1024:")
    assert "32 processes" in notes["processes"].text
    assert notes["/dev/shm"].text.startswith("64.0 MiB; the store does not use it")
    assert shm in notes["/dev/shm"].hint
    assert spill in notes["disk"].hint
    assert results["seccomp"].level == "ok"


def test_limits_of_groups_above_and_of_version_1(machine: NewMachine) -> None:
    here = machine(
        {
            "proc/self/cgroup": "5:cpu,memory:/docker/abc\n3:pids:/docker/abc\n0::/x\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            "sys/fs/cgroup/memory/docker/memory.limit_in_bytes": "2147483648\n",
            "sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes": "4294967296\n",
            "sys/fs/cgroup/pids/pids.max": "max\n",
            "sys/fs/cgroup/pids/docker/abc/pids.max": "99\n",
        }
    )
    assert here.memory_limit() == 2 << 30
    assert here.group_limit("pids", "pids.max", "pids.max") == 99
    assert checks(here)["memory"].text.endswith("control group limit 2.0 GiB (a private store counts against it)")


def test_a_limit_of_file_sizes_is_a_problem(machine: NewMachine) -> None:
    results = checks(machine({"proc/self/limits": LIMITS.format(size="1073741824", files="65536")}))
    assert (results["file size"].level, results["descriptors"].level) == ("problem", "ok")
    assert results["file size"].hint.startswith("ulimit -f unlimited")


@pytest.mark.parametrize(("kind", "level"), [("ext4", None), ("tmpfs", "note"), ("9p", "note"), ("overlay", "note")])
def test_the_folder_that_a_full_store_spills_to(machine: NewMachine, kind: str, level: str | None) -> None:
    mounts = f"{DISK}30 20 0:9 / /var/tmp rw - {kind} x rw\n31 20 0:10 / /var/tmpfiles rw - overlay x rw\n"
    check = checks(machine({"proc/self/mountinfo": mounts})).get("disk")
    assert (check.level if check else None) == level
    assert check is None or check.hint


@pytest.mark.parametrize(
    ("release", "version", "level"),
    [
        ("5.15.167.4-microsoft-standard-WSL2", 2, "note"),
        ("4.4.0-19041-Microsoft", 1, "problem"),
        ("6.1.0-18-amd64", 0, None),
    ],
)
def test_wsl(machine: NewMachine, release: str, version: int, level: str | None) -> None:
    here = machine({"proc/sys/kernel/osrelease": release + "\n"})
    assert here.wsl() == version
    check = checks(here).get("WSL")
    assert (check.level if check else None) == level
    assert check is None or "wsl --" in check.hint


def test_no_proc(tmp_path: Path) -> None:
    check = checks(Machine(tmp_path, "Linux", {}))["memory"]
    assert (check.level, check.hint) == ("problem", "mount -t proc proc /proc")


@pytest.mark.parametrize(
    ("system", "words", "hint"),
    [("Darwin", "on macOS", "docker run"), ("Windows", "WSL 2", "wsl --install"), ("FreeBSD", "FreeBSD", "docker run")],
)
def test_other_systems_are_told_why_and_what_to_do(tmp_path: Path, system: str, words: str, hint: str) -> None:
    (check,) = surroundings(Machine(tmp_path, system, {}))
    assert check.level == "problem"
    assert words in check.text
    assert "memfd_create" in check.text
    assert hint in check.hint
    assert unsupported_reason("Linux") is None


@pytest.mark.parametrize("probe", [probe_memfd, probe_pidfd])
def test_a_filter_of_system_calls_is_named(
    machine: NewMachine, monkeypatch: pytest.MonkeyPatch, probe: Callable[[Machine], Check]
) -> None:
    here = machine({".dockerenv": ""})
    assert probe(here).level == "ok"

    def refuse(*_: object) -> int:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "memfd_create", refuse)
    monkeypatch.setattr(os, "pidfd_open", refuse)
    check = probe(here)
    assert check.level != "ok"
    assert "Operation not permitted" in check.text
    assert "--security-opt seccomp" in check.hint


def test_the_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, machine: NewMachine) -> None:
    here = machine({".dockerenv": "", "proc/self/limits": LIMITS.format(size="4096", files="64")})
    monkeypatch.setattr(doctor, "Machine", lambda: here)
    assert main(["doctor"]) == 1
    plain = capsys.readouterr().out
    assert "problem  file size: limit 4.0 KiB" in plain
    assert "hint: " not in plain
    assert plain.splitlines()[-1].strip() == "(entrepot doctor --fix-hints prints what to do about each)"
    assert main(["doctor", "--fix-hints"]) == 1
    hinted = capsys.readouterr().out.splitlines()
    at = next(number for number, line in enumerate(hinted) if line.startswith("note     descriptors: "))
    assert hinted[at + 1] == "         hint: docker run --ulimit nofile=65536:65536 ..."
    assert main(["doctor", "--json"]) == 1
    (descriptors,) = [line for line in json.loads(capsys.readouterr().out) if line["topic"] == "descriptors"]
    assert descriptors["hint"] == "docker run --ulimit nofile=65536:65536 ..."


# What Python would find on macOS: its name, and neither memfd_create nor an extension that could be loaded.
AS_ON_MACOS = """
import os, platform, sys
sys.platform = "darwin"
platform.system = lambda: "Darwin"
del os.memfd_create, os.pidfd_open
class NoExtension:
    def find_spec(self, name, path=None, target=None):
        if name == "entrepot._core":
            raise AssertionError("the linker's error would come first")
sys.meta_path.insert(0, NoExtension())
"""


def as_on_macos(program: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", AS_ON_MACOS + program]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_on_macos_the_package_is_imported_and_says_what_does_not_work() -> None:
    done = as_on_macos(
        "import entrepot\n"
        "print(issubclass(entrepot.UnsupportedPlatform, (entrepot.EntrepotError, ImportError)), entrepot.__version__)\n"
        "for use in (lambda: entrepot.connect, lambda: entrepot._core, lambda: entrepot.Store):\n"
        "    try:\n"
        "        use()\n"
        "    except entrepot.UnsupportedPlatform as error:\n"
        "        print(error)\n"
    )
    assert (done.returncode, done.stderr) == (0, "")
    first, *others = done.stdout.splitlines()
    assert first.startswith("True ")
    assert len(others) == 3
    assert all(line.startswith("Entrepot does not run here: on macOS, a store needs Linux") for line in others)
    assert all("docker run" in line for line in others)


def test_on_macos_the_doctor_runs() -> None:
    done = as_on_macos("from entrepot.cli import main\nsys.exit(main(['doctor', '--fix-hints']))\n")
    assert (done.returncode, done.stderr) == (1, "")
    system, platform_line, hint = done.stdout.splitlines()
    assert system.startswith("ok       system: Darwin")
    assert platform_line.startswith("problem  platform: on macOS, a store needs Linux")
    assert hint.strip().startswith("hint: docker run")


def test_on_macos_other_commands_say_why_they_do_not_work() -> None:
    done = as_on_macos("from entrepot.cli import main\nsys.exit(main(['status']))\n")
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("entrepot: Entrepot does not run here: on macOS, a store needs Linux")


def test_on_this_system_it_is_supported() -> None:
    require_supported()
    assert issubclass(UnsupportedPlatform, EntrepotError)
