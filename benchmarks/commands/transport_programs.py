"""Programs on the hosts of ``python -m benchmarks transport``: lines of JSON ask them, and others are the answers."""

from __future__ import annotations

import json
import subprocess
from typing import Any

END_SECONDS = 30


def wait_ready(process: subprocess.Popen[str], what: str) -> None:
    """Wait until a program says that it is ready."""
    if _read_line(process) != "ready\n":
        raise RuntimeError(f"{what} did not start")


def ask(process: subprocess.Popen[str], question: Any) -> Any:
    """Ask a program, and return its answer."""
    assert process.stdin is not None
    process.stdin.write(json.dumps(question) + "\n")
    process.stdin.flush()
    return json.loads(_read_line(process))


def gbits_per_second(answer: dict[str, Any], nbytes: int) -> float:
    """Gbit/s of payload, of an answer with the bytes and the seconds of a transfer of ``nbytes``."""
    assert answer["nbytes"] == nbytes, answer
    return float(8 * nbytes / answer["seconds"] / 1e9)


def _read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"a program of the benchmark ended with {process.wait(END_SECONDS)}")
    return line
