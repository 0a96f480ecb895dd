"""Machine and commit: the context needed to judge figures."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
THP = Path("/sys/kernel/mm/transparent_hugepage")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return "unknown"


def _chosen(text: str) -> str:
    """The selected word: ``madvise`` in ``always [madvise] never``."""
    return text.partition("[")[2].partition("]")[0] or text


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else "unknown"


def machine() -> dict[str, Any]:
    """Properties and settings of the machine."""
    model, hypervisor = "unknown", False
    for line in _text(Path("/proc/cpuinfo")).splitlines():
        if line.startswith("model name") and model == "unknown":
            model = line.partition(":")[2].strip()
        hypervisor = hypervisor or (line.startswith("flags") and " hypervisor" in line)
    gib = 1 << 30
    tmpfs = shutil.disk_usage("/dev/shm").total / gib if Path("/dev/shm").is_dir() else 0.0  # noqa: S108
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "virtual machine": hypervisor,
        "memory GiB": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / gib, 1),
        "kernel": platform.release(),
        "transparent huge pages": _chosen(_text(THP / "enabled")),
        "huge pages for shared memory": _chosen(_text(THP / "shmem_enabled")),
        "tmpfs for shared memory GiB": round(tmpfs, 1),
        "python": platform.python_version(),
        "libc": " ".join(platform.libc_ver()),
        "load before": round(os.getloadavg()[0], 2),
    }


def commit() -> dict[str, Any]:
    """Of this checkout, with the number of changed files."""
    return {
        "commit": _git("rev-parse", "HEAD"),
        "subject": _git("log", "-1", "--format=%s"),
        "changed files": len([line for line in _git("status", "--porcelain").splitlines() if line]),
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
    }
