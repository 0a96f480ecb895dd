"""Examples in the documentation that are complete programs run unmodified."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


PROGRAMS = [
    ("docs/admission.md", 0),
    ("docs/builders.md", 0),
    ("docs/cluster-transport.md", 0),
    ("docs/codecs.md", 0),
    ("docs/collections.md", 0),
    ("docs/dataframes.md", 0),
    ("docs/errors/README.md", 0),
    ("docs/eviction.md", 0),
    ("docs/filesystem.md", 0),
    *(("docs/how-to/README.md", number) for number in range(3)),
    ("docs/plasma-python.md", 0),
    ("docs/resharing.md", 0),
    *(("docs/services.md", number) for number in range(6)),
    ("docs/streams.md", 0),
    ("docs/streams.md", 1),
    ("docs/checkpoints.md", 0),
    ("docs/checkpoints.md", 1),
    ("docs/policy.md", 0),
    ("docs/policy.md", 1),
    ("README.md", 2),  # spilling; test_readme has the others
]
WITHOUT_STORE = [("docs/cluster.md", 0), ("docs/kubernetes.md", 0)]


@pytest.mark.parametrize(("page", "number"), WITHOUT_STORE)
def test_an_example_that_needs_no_store_runs(page: str, number: int) -> None:
    program = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)[number]
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("page", "number"), PROGRAMS)
def test_an_example_of_a_page_runs(page: str, number: int, daemon: Any) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    program = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[number]
    assert "entrepot.connect(" in program
    environment = os.environ | {"ENTREPOT_ADDRESS": daemon.address}
    command = [sys.executable, "-c", program]
    for _ in range(2):  # a reader may run it again in the same store
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
