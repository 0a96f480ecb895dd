"""The last pyarrow with Plasma, in an environment of its own: its server, its interpreter, its test file."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.harness.environments import environment
from benchmarks.systems.base import accepts


def interpreter() -> str:
    """Path of its Python, with pyarrow 11, NumPy and pandas; the first call installs them."""
    python = environment("plasma")
    installed = subprocess.run([python, "-c", "import pandas"], capture_output=True, timeout=60)
    if installed.returncode != 0:
        uv = subprocess.run(["bash", "tools/find_uv.sh"], capture_output=True, text=True, timeout=60, check=True)
        command = [uv.stdout.strip(), "pip", "install", "--quiet", "--python", python, "pandas<2.2"]
        subprocess.run(command, check=True, timeout=300)
    return python


def package() -> Path:
    """The folder of its pyarrow."""
    (folder,) = Path(environment("plasma")).parent.parent.glob("lib/python*/site-packages/pyarrow")
    return folder


@contextmanager
def server(socket: Path) -> Iterator[None]:
    """Run its server of 100 MB at a socket."""
    command = [str(package() / "plasma-store-server"), "-s", str(socket), "-m", "100000000"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not accepts(socket):
            assert process.poll() is None, "plasma-store-server exited"
        yield
    finally:
        process.kill()
        process.wait()
