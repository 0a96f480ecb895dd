"""What needs libraries that are too large for the environment of all other tests, each in an environment that has it.

PyTorch's wheels for Linux on the Python package index need CUDA's libraries, without a GPU as well: 5.3 GB on disk. Its
environment is left out, with a message, where they cannot be had, and this test is skipped then.
"""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from matrix_run import ROOT

CODECS = "tests/io_managers/codecs"
WITH_PYTORCH = [
    f"{CODECS}/test_torch.py",
    "tests/io_managers/collections/test_tensors.py",
    "tests/dataframes/test_torch.py",
]
SECONDS = 500

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(sys.version_info >= (3, 13), reason="`make environments` leaves them out for this Python"),
]


def run_tests_in(environment: str, least: int, *tests: str) -> None:
    """Run tests in an environment; at least so many of them must run, none may be skipped, and all must pass."""
    python = ROOT / environment / "bin/python"
    done = subprocess.run(
        [python, "-m", "pytest", "-q", "--color=no", *tests], cwd=ROOT, capture_output=True, text=True, timeout=SECONDS
    )
    assert done.returncode == 0, done.stdout + done.stderr
    closing = done.stdout.splitlines()[-1]
    passed = re.search(r"(\d+) passed", closing)
    assert passed is not None, closing
    assert int(passed[1]) >= least, closing
    assert "skipped" not in closing


def test_the_codec_of_jax_arrays() -> None:
    assert (ROOT / ".venv-jax/bin/python").exists(), "the environment jax is not there: `make environments` makes it"
    run_tests_in(".venv-jax", 160, f"{CODECS}/test_dlpack.py")


@pytest.mark.skipif(
    not (ROOT / ".venv-torch/.developed").exists(),
    reason="PyTorch (5.3 GB) was not installed: `make .venv-torch/.developed` does, or says why not",
)
def test_tensors_data_sets_and_frames_with_pytorch() -> None:
    run_tests_in(".venv-torch", 75, *WITH_PYTORCH)
