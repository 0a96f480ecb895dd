"""The codec of JAX's arrays, in an environment that has JAX: in that of all other tests, it is left out for its size.

PyTorch has no such environment: its wheels for Linux on the Python package index need some 3 GB of CUDA libraries.
"""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from matrix_run import ROOT

PYTHON = ROOT / ".venv-jax/bin/python"
TESTS = "tests/io_managers/codecs/test_dlpack.py"

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(sys.version_info >= (3, 13), reason="`make environments` leaves it out for this Python"),
]


def test_the_codec_of_jax_arrays_in_an_environment_with_jax() -> None:
    assert PYTHON.exists(), "the environment jax is not there: `make environments` makes it"
    done = subprocess.run(
        [PYTHON, "-m", "pytest", "-q", "--color=no", TESTS], cwd=ROOT, capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stdout + done.stderr
    closing = done.stdout.splitlines()[-1]
    passed = re.search(r"(\d+) passed", closing)
    assert passed is not None, closing
    assert int(passed[1]) >= 160, closing
    assert "skipped" not in closing
