"""The README's quick start works as described."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from entrepot._daemon import launcher

ROOT = Path(__file__).resolve().parents[2]


def _quick_start() -> str:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = text.partition("## Quick start")[2].partition("\n## ")[0]
    blocks = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    assert blocks, "the section Quick start has no Python in it"
    return "\n".join(blocks)


def test_quick_start_runs_with_a_private_daemon(socket_folder: Path, wait_until: Callable[..., None]) -> None:
    (socket_folder / "state").mkdir()
    environment = os.environ | {
        "XDG_RUNTIME_DIR": str(socket_folder),
        "XDG_STATE_HOME": str(socket_folder / "state"),
        "ENTREPOT_PRIVATE_SIZE": "128MiB",
    }
    # The status lets the test stop the store that the quick start started, and shows what is left in it.
    program = 2 * f"{_quick_start()}\n" + (
        "status = entrepot.connect().status()\n"
        "print('keeper', status['keeper_pid'])\n"
        "print('left', status['objects'])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60)
    keeper = re.search(r"^keeper (\d+)$", done.stdout, re.MULTILINE)
    if keeper is not None:
        os.kill(int(keeper[1]), signal.SIGTERM)
        wait_until(lambda: not launcher.is_running(int(keeper[1])), "the private daemon to end")
    assert done.returncode == 0, done.stderr
    assert re.match(r"[0-9a-f]{40}\n", done.stdout)
    assert keeper is not None
    assert done.stdout.endswith("\nleft 0\n"), "it deletes what it put, and can be run again"
