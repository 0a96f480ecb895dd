"""``entrepot save``, ``evict --wait`` and ``load`` show their progress in a terminal, and nothing of it elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import entrepot
import numpy as np
import pytest

pytest.importorskip("blake3")
BYTES = 64 << 20


def _in_terminal(*arguments: str) -> str:
    """What a subcommand prints on standard error, if that is a terminal."""
    master, slave = os.openpty()
    chunks: list[bytes] = []
    try:
        with subprocess.Popen(
            [sys.executable, "-m", "entrepot", *arguments], stdout=subprocess.DEVNULL, stderr=slave
        ) as process:
            os.close(slave)
            while True:
                try:
                    chunks.append(os.read(master, 65536))
                except OSError:  # the program has ended
                    break
            assert process.wait(60) == 0, b"".join(chunks)
    finally:
        os.close(master)
    return b"".join(chunks).decode()


def test_long_work_shows_its_progress(start_daemon: Callable[..., Any], tmp_path: Path) -> None:
    spill = tmp_path / "spill"
    spill.mkdir(mode=0o700)
    daemon = start_daemon("256MiB", "--spill-path", str(spill))
    target = str(tmp_path / "checkpoint")
    with entrepot.connect(daemon.address) as store:
        store.put(np.random.default_rng(1).random(BYTES // 8), name="big")
        commands = (["save", "big", target], ["evict", "big", "--wait", "60s"], ["load", target, "--replace"])
        for command in commands:
            shown = _in_terminal(*command, "--address", daemon.address)
            assert "100 %  64.0 MiB of 64.0 MiB, 1 of 1 objects" in shown, (command, shown)
        done = subprocess.run(
            [sys.executable, "-m", "entrepot", *commands[0], "--address", daemon.address],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (done.returncode, done.stderr) == (0, "")
