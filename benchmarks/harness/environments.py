"""Virtual environments for the peers, created by uv from the pinned requirements in ``benchmarks/peers``."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from pathlib import Path

from benchmarks.harness.machine import ROOT
from benchmarks.systems.base import Unavailable

PEERS = ROOT / "benchmarks" / "peers"
PLACE = ROOT / "build" / "bench-envs"
INSTALL_SECONDS = 600
# redis-server and the libraries it needs, by their Debian 12 names; unpacked, not installed.
REDIS_PACKAGES = ["redis-server", "redis-tools", "libjemalloc2", "liblzf1", "libatomic1"]


def environment(name: str) -> str:
    """The interpreter of a peer's environment, created if missing or if its requirements changed.

    Raises:
        Unavailable: it cannot be created on this machine; the message says why.
    """
    requirements = PEERS / f"{name}.txt"
    text = requirements.read_text(encoding="utf-8")
    folder = PLACE / name
    python = folder / "bin" / "python"
    stamp = folder / "requirements.sha256"
    digest = hashlib.sha256(text.encode()).hexdigest()
    if python.exists() and stamp.exists() and stamp.read_text() == digest:
        return str(python)
    match = re.search(r"^# python: (\S+)$", text, re.MULTILINE)
    if match is None:
        raise ValueError(f"{requirements} has no line '# python: VERSION'")
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    uv = _run(["bash", str(ROOT / "tools/find_uv.sh")], "find uv").strip()
    _run([uv, "venv", "--quiet", "--python", match[1], str(folder)], f"make an environment with Python {match[1]}")
    install = [uv, "pip", "install", "--quiet", "--python", str(python)]
    _run([*install, "-r", str(requirements)], f"install {requirements.name}")
    if name == "redis":
        _unpack_redis(folder)
    stamp.write_text(digest)
    return str(python)


def _unpack_redis(folder: Path) -> None:
    """Get redis-server from Debian's packages if the machine has none; otherwise the peer reports that it is
    missing.
    """
    if shutil.which("redis-server") or not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        return
    packages = folder / "packages"
    packages.mkdir()
    try:
        _run(["apt-get", "download", "-qq", *REDIS_PACKAGES], "download redis-server", cwd=packages)
    except Unavailable as error:
        raise Unavailable(
            f"there is no redis-server on PATH, and Debian's packages cannot be had ({error}): install redis-server"
        ) from error
    for package in packages.iterdir():
        _run(["dpkg-deb", "-x", str(package), str(folder / "debian")], f"unpack {package.name}")


def _run(command: list[str], what: str, cwd: Path | None = None) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, cwd=cwd)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"could not {what} within {INSTALL_SECONDS} s") from None
    if done.returncode != 0:
        raise Unavailable(f"could not {what}: {done.stderr.strip()[-400:]}")
    return done.stdout
