"""``entrepot://`` in Airflow's ``ObjectStoragePath``."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import entrepot
import pytest

# Not imported here: Airflow configures logging, which other tests of this process would notice.
pytestmark = pytest.mark.skipif(importlib.util.find_spec("airflow") is None, reason="Airflow is not installed")

PROGRAM = """
import json
from airflow.sdk import ObjectStoragePath

path = ObjectStoragePath("entrepot://current/reports/one.txt")
path.parent.mkdir(parents=True, exist_ok=True)
with path.open("w") as file:
    file.write("text")
other = ObjectStoragePath("entrepot://elsewhere@current/two.bin")
other.write_bytes(b"other")
with other.open("rb") as file:  # another way to the file system than that of write_bytes
    assert file.read() == b"other"
absolute = ObjectStoragePath("entrepot://default/-/reports/one.txt")
print("RESULT", json.dumps([
    absolute.read_text(),
    [entry.name for entry in ObjectStoragePath("entrepot://current/reports").iterdir()],
    absolute.stat().st_size,
    path.exists() and not (path.parent / "none").exists(),
]))
"""


@pytest.mark.slow
def test_object_storage_paths(daemon: Any, tmp_path: Path) -> None:
    environment = os.environ | {
        "AIRFLOW_HOME": str(tmp_path),
        "ENTREPOT_ADDRESS": daemon.address,
        "AIRFLOW__ENTREPOT__SCOPE": "production",  # for connections
        "AIRFLOW_CONN_ELSEWHERE": json.dumps({"conn_type": "generic", "extra": {"session": "run"}}),
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stdout + done.stderr
    line = next(line for line in done.stdout.splitlines() if line.startswith("RESULT "))
    assert json.loads(line.removeprefix("RESULT ")) == ["text", ["one.txt"], 4, True]
    with entrepot.connect(daemon.address, scope="default") as store:
        assert store.get_by_name("reports/one.txt") == b"text"
    with entrepot.connect(daemon.address, scope="production", session="run") as store:
        assert store.get_by_name("two.bin") == b"other"
