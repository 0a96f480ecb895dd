"""The agent and the Java programs of the tests, built once."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import entrepot
import pytest

RunProgram = Callable[..., "subprocess.Popen[str]"]

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
    return ROOT / "io_managers" / "entrepot_pipes" / "jars" / "entrepot-pipes-agent.jar"


@pytest.fixture(scope="session")
def classes(agent: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the compiled programs."""
    folder = tmp_path_factory.mktemp("classes")
    sources = sorted(map(str, _PROGRAMS.glob("*.java")))
    subprocess.run(["javac", "-d", str(folder), *sources], check=True, timeout=120)
    return folder


@pytest.fixture(scope="session")
def spark_python() -> Path:
    """The interpreter with PySpark; skips the test where ``make jvm-engines`` did not make it."""
    python = ROOT / ".venv-spark" / "bin" / "python"
    if not python.exists():
        pytest.skip("PySpark is not there (make jvm-engines)")
    return python


@pytest.fixture(scope="session")
def derby(spark_python: Path) -> Path:
    """Derby's jar, which comes with PySpark."""
    return next(spark_python.parents[1].glob("lib/python*/site-packages/pyspark/jars/derby-*.jar"))


@pytest.fixture
def run_program(store: entrepot.Store, agent: Path) -> Iterator[RunProgram]:
    """``run_program(*words)``: a program under ``entrepot pipe run``, killed at the end of the test if it runs."""
    started: list[subprocess.Popen[str]] = []

    def start(*words: str | Path) -> Any:
        command = [sys.executable, "-m", "entrepot", "pipe", "run", "--", *map(str, words)]
        started.append(
            subprocess.Popen(
                command,
                env={**os.environ, "ENTREPOT_PIPES_AGENT": str(agent)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()
