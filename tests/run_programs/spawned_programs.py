"""Programs that a test runs step by step, through pipes: see the fixture ``spawn`` of ``tests/core``."""

from __future__ import annotations

import subprocess


def read_line(process: subprocess.Popen[str]) -> str:
    """Wait for the next line that the program prints."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def send_line(process: subprocess.Popen[str]) -> None:
    """Let a program go on that waits for a line."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
