"""The file of an embedded directory is deleted while processes have it open."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from entrepot.errors import DirectoryUnavailable
from entrepot_cluster.directory.backends import embedded
from entrepot_cluster.directory.backends.embedded import EmbeddedBackend

sys.path.insert(0, str(Path(__file__).parents[2] / "run_programs"))

from spawned_programs import read_line, send_line

pytestmark = pytest.mark.timeout(120)

OTHER = """
import sys
from pathlib import Path
from entrepot_cluster.directory.backends.embedded import EmbeddedBackend

backend = EmbeddedBackend(Path(sys.argv[1]), 30)
backend.write(backend.grant(7, 600), {b"p other": b"1"})
print("ready", flush=True)
for _ in sys.stdin:
    print([entry.key for entry in backend.read_prefixes([b"p"])[0]], flush=True)
"""


def test_a_new_file_takes_nothing_over_from_a_deleted_one(tmp_path: Path) -> None:
    path = tmp_path / "directory"
    other = subprocess.Popen(
        [sys.executable, "-c", OTHER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with other:
        try:
            assert read_line(other) == "ready"
            backend = EmbeddedBackend(path, 30)
            backend.write(backend.grant(1, 600), {b"p old": b"1"})
            path.unlink()  # the other process has it open, and its files of SQLite's are still there
            assert backend.read_prefixes([b"p"]) == [[]]
            backend.write(backend.grant(1, 600), {b"p new": b"1"})
            send_line(other)
            assert read_line(other) == "[b'p new']"
            assert [entry.key for entry in backend.read_prefixes([b"p"])[0]] == [b"p new"]
            backend.close()
        finally:
            other.kill()


def test_whoever_creates_the_file_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "directory"
    backend = EmbeddedBackend(path, 0.05)
    with (
        embedded.locked(Path(f"{path}.lock"), 0.05),
        pytest.raises(DirectoryUnavailable, match="has been creating the directory"),
    ):
        backend.read([b"p"])
    assert backend.read([b"p"]) == [None]
    backend.close()
