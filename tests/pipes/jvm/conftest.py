"""The agent and the Java programs of the tests, built once."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
_PROGRAMS = Path(__file__).with_name("programs")


@pytest.fixture(scope="session")
def agent() -> Path:
    """The agent's jar, built by ``make jvm``; skips the test where there is no Maven, or no Java with Unix sockets."""
    if not shutil.which("mvn") or not shutil.which("javac"):
        pytest.skip("needs Maven and a JDK")
    version = subprocess.run(["javac", "-version"], capture_output=True, text=True, check=True, timeout=60).stdout
    if int(version.split()[1].partition(".")[0]) < 16:
        pytest.skip(f"needs a JDK from 16 on, not {version.strip()}")
    (ROOT / "build").mkdir(exist_ok=True)
    with open(ROOT / "build" / "jvm.lock", "w") as lock:  # several processes of pytest
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run(["make", "jvm"], cwd=ROOT, check=True, timeout=300)
    return ROOT / "jvm" / "agent" / "target" / "entrepot-pipes-agent.jar"


@pytest.fixture(scope="session")
def classes(agent: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the compiled programs."""
    folder = tmp_path_factory.mktemp("classes")
    sources = sorted(map(str, _PROGRAMS.glob("*.java")))
    subprocess.run(["javac", "-d", str(folder), *sources], check=True, timeout=120)
    return folder
