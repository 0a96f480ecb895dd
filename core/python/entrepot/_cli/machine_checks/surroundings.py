"""Checks of what a container, WSL or the process's limits take away from a store; each with what changes it."""

from __future__ import annotations

import os
from collections.abc import Iterator

from entrepot._cli.common import human_bytes
from entrepot._cli.machine_checks.check import Check
from entrepot._cli.machine_checks.machine import Engine, Machine
from entrepot.platform_support import fix_hint, unsupported_reason

MIN_OPEN_FILES = 4096
MIN_TASKS = 64  # of a control group: a store's ten, a client's threads, and the programs of the tasks
SMALL_MEMORY = 1 << 30
SHARE_OF_MEMORY = 30  # percent that a store takes by default
SHM = "/dev/shm"  # noqa: S108, nothing is created there
DEFAULT_SHM = 64 << 20  # what Docker and Podman give a container


def surroundings(machine: Machine) -> Iterator[Check]:
    """All checks of this module that apply to a machine."""
    reason = unsupported_reason(machine.system)
    if reason is not None:
        yield Check("platform", "problem", reason, fix_hint(machine.system))
        return
    yield from _wsl(machine)
    yield _memory(machine)
    yield _open_files(machine)
    yield from _file_size(machine)
    yield from _tasks(machine)
    engine = machine.engine()
    if engine:
        yield _container(engine)
        yield from _shared_memory_folder(machine, engine)
        yield from _seccomp(machine)
    yield from _spill_folder(machine, engine)


def seccomp_hint(machine: Machine) -> str:
    """What admits a system call that a sandbox's filter refuses."""
    return {
        "kubernetes": "securityContext: {seccompProfile: {type: RuntimeDefault}}    # in the pod's specification",
        "docker": "docker run --security-opt seccomp=unconfined ...    # or a newer Docker, whose profile admits it",
        "podman": "podman run --security-opt seccomp=unconfined ...    # or a newer Podman, whose profile admits it",
    }.get(
        machine.engine(), "grep Seccomp /proc/self/status    # then admit the call in the sandbox that set the filter"
    )


def _wsl(machine: Machine) -> Iterator[Check]:
    version = machine.wsl()
    if version == 1:
        yield Check(
            "WSL",
            "problem",
            "this is WSL 1, which imitates Linux's system calls on Windows' kernel: a store is not supported there",
            "wsl --set-version DISTRIBUTION 2    # in PowerShell; wsl --list --verbose shows the names",
        )
    elif version == 2:
        yield Check(
            "WSL",
            "note",
            "this is WSL 2, where a store works as on any Linux. Its memory is that of the virtual machine (by default "
            "half of Windows'), Windows' drives under /mnt hold neither sockets nor fast spill files, and everything "
            "in the store is lost when Windows shuts the machine down for being idle",
            "printf '[wsl2]\\nmemory=16GB\\nvmIdleTimeout=-1\\n' >> /mnt/c/Users/NAME/.wslconfig    "
            "# then, in PowerShell: wsl --shutdown",
        )


def _container(engine: Engine) -> Check:
    name = {"docker": "Docker", "podman": "Podman", "kubernetes": "Kubernetes"}.get(engine, "a container engine")
    text = (
        f"run by {name}: a store that starts here ends with this container, and other containers reach it only if they "
        "share the folder of its socket and run as the same user"
    )
    hint = {
        "docker": "docker run -v entrepot-run:/run/entrepot -e ENTREPOT_ADDRESS=unix:///run/entrepot/store.sock ...",
        "podman": "podman run -v entrepot-run:/run/entrepot -e ENTREPOT_ADDRESS=unix:///run/entrepot/store.sock ...",
        "kubernetes": "kubectl annotate pod ... entrepot.dev/inject=true    # with the operator: docs/kubernetes.md",
    }.get(engine, "export ENTREPOT_ADDRESS=unix:///shared/folder/store.sock    # in each of the containers")
    return Check("container", "ok", text, hint)


def _memory(machine: Machine) -> Check:
    memory = machine.memory()
    if "MemTotal" not in memory or "MemAvailable" not in memory:
        return Check(
            "memory",
            "problem",
            "/proc/meminfo cannot be read, or names no MemTotal or no MemAvailable: a store cannot choose its size",
            "mount -t proc proc /proc",
        )
    total = memory["MemTotal"]
    text = f"{human_bytes(total)} total, {human_bytes(memory['MemAvailable'])} available"
    limit = machine.memory_limit()
    if limit is None or limit >= total:
        return Check("memory", "ok", text)
    text += f", control group limit {human_bytes(limit)} (a private store counts against it)"
    if limit >= SMALL_MEMORY:
        return Check("memory", "ok", text)
    return Check(
        "memory",
        "note",
        f"{text}: by default, a store takes {SHARE_OF_MEMORY} % of that, which is {human_bytes(limit * 3 // 10)}, and "
        "the tasks' own memory counts against the same limit",
        {
            "docker": "docker run --memory 4g -e ENTREPOT_PRIVATE_SIZE=2GiB ...",
            "podman": "podman run --memory 4g -e ENTREPOT_PRIVATE_SIZE=2GiB ...",
            "kubernetes": "resources: {limits: {memory: 4Gi}}    # and ENTREPOT_PRIVATE_SIZE=2GiB in env",
        }.get(machine.engine(), "systemd-run --user --scope -p MemoryMax=4G COMMAND"),
    )


def _open_files(machine: Machine) -> Check:
    limit = machine.limit("Max open files")
    if limit is None or limit >= MIN_OPEN_FILES:
        return Check("descriptors", "ok", f"limit {limit or 'none'}")
    return Check(
        "descriptors",
        "note",
        f"limit {limit}: a store needs about 40 descriptors plus three for each client, and one for each segment",
        {
            "docker": "docker run --ulimit nofile=65536:65536 ...",
            "podman": "podman run --ulimit nofile=65536:65536 ...",
            "kubernetes": "LimitNOFILE=65536    # in the unit of the container runtime, on the node",
        }.get(machine.engine(), "ulimit -n 65536    # in a systemd unit: LimitNOFILE=65536"),
    )


def _file_size(machine: Machine) -> Iterator[Check]:
    limit = machine.limit("Max file size")
    if limit is not None:
        yield Check(
            "file size",
            "problem",
            f"limit {human_bytes(limit)}: shared memory counts as files, and a store creates its tables with their "
            "maximum size, although only what is used takes memory",
            "ulimit -f unlimited    # in a systemd unit: LimitFSIZE=infinity",
        )


def _tasks(machine: Machine) -> Iterator[Check]:
    limit = machine.group_limit("pids", "pids.max", "pids.max")
    if limit is not None and limit < MIN_TASKS:
        yield Check(
            "processes",
            "note",
            f"the control group admits {limit} processes and threads; a store alone has ten, and tasks have their own",
            {
                "docker": "docker run --pids-limit 1024 ...",
                "podman": "podman run --pids-limit 1024 ...",
                "kubernetes": "podPidsLimit: 1024    # in the kubelet's configuration",
            }.get(machine.engine(), "systemd-run --user --scope -p TasksMax=1024 COMMAND"),
        )


def _shared_memory_folder(machine: Machine, engine: Engine) -> Iterator[Check]:
    mount = machine.mount_of(SHM)
    if mount is None or mount.kind != "tmpfs":
        yield Check(SHM, "ok", "none, which the store does not need: its memory is not in a folder")
        return
    size = mount.size()
    shown = human_bytes(size) if size is not None else "half of the memory"
    text = f"{shown}; the store does not use it: its memory is not in a folder"
    if size is None or size > DEFAULT_SHM:
        yield Check(SHM, "ok", text)
        return
    yield Check(
        SHM,
        "note",
        f"{text}. Other libraries of your tasks do (PyTorch's data loaders, multiprocessing.shared_memory), and die "
        "with 'Bus error' when it is full",
        {
            "docker": "docker run --shm-size 1g ...",
            "podman": "podman run --shm-size 1g ...",
            "kubernetes": "volumes: [{name: shm, emptyDir: {medium: Memory, sizeLimit: 1Gi}}]    # mounted at /dev/shm",
        }.get(engine, "mount -o remount,size=1G /dev/shm"),
    )


def _seccomp(machine: Machine) -> Iterator[Check]:
    mode = machine.status("Seccomp")
    if mode is None:
        return
    if mode == "0":
        yield Check("seccomp", "ok", "no filter of system calls")
    else:
        yield Check("seccomp", "ok", "a filter of system calls is on; the other checks tried what a store calls")


def _spill_folder(machine: Machine, engine: Engine) -> Iterator[Check]:
    folder = "/var/tmp"  # noqa: S108, the default of entrepotd
    mount = machine.mount_of(folder)
    if mount is None:
        return
    if mount.kind == "overlay":
        engine_hint = {
            "kubernetes": "volumes: [{name: spill, emptyDir: {}}]    # mounted at /var/tmp",
            "podman": "podman run -v entrepot-spill:/var/tmp ...",
        }
        yield Check(
            "disk",
            "note",
            f"{folder}, to which a full store spills, is an overlay, such as a container's own layer: slower than a "
            "volume, and gone with the container",
            engine_hint.get(engine, "docker run -v entrepot-spill:/var/tmp ..."),
        )
    elif mount.kind in ("tmpfs", "ramfs"):
        yield Check(
            "disk",
            "note",
            f"{folder}, to which a full store spills, is memory ({mount.kind}): spilling there frees none",
            "entrepot start --spill-path /a/folder/on/disk    # or --spill-path none",
        )
    elif mount.kind in ("9p", "drvfs"):
        yield Check(
            "disk",
            "note",
            f"{folder}, to which a full store spills, is a folder of another system ({mount.kind}), which is slow",
            f"entrepot start --spill-path {os.path.expanduser('~')}/.cache/entrepot-spill",
        )
