"""``entrepot cluster --lost``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from entrepot.cli import main
from entrepot_cluster.directory.model import Life, PlaceEntry
from entrepot_cluster.directory.opening import open_directory

pytestmark = pytest.mark.timeout(120)


def test_what_was_lost_is_listed_with_its_copies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], wait_until: Callable[..., None]
) -> None:
    url = f"embedded://{tmp_path}/test"
    only_there, copied, replaced = (bytes([n]) * 20 for n in (1, 2, 3))
    with open_directory(url) as directory:
        dying = directory.register(f"{1:032x}", "dies", ["127.0.0.1:1"], protocol=1, started_at=0.0, lease_seconds=1)
        dying.publish([PlaceEntry(oid, 7, 100) for oid in (only_there, copied, replaced)])
        stays = directory.register(f"{2:032x}", "stays", ["127.0.0.1:2"], protocol=1, started_at=0.0, lease_seconds=600)
        stays.publish([PlaceEntry(copied, 1, 100, origin=Life(f"{1:032x}", 7)), PlaceEntry(replaced, 2, 5)])
        assert main(["cluster", "--cluster", url, "--lost", "--json"]) == 0
        capsys.readouterr()
        wait_until(lambda: not directory.instances()[0].live, "the lease to end")
        assert main(["cluster", "--cluster", url, "--lost", "--json"]) == 0
        items = json.loads(capsys.readouterr().out)
        assert [(item["id"], item["host"], item["copies"]) for item in items] == [
            (only_there.hex(), "dies", []),
            (copied.hex(), "dies", ["stays"]),
            (replaced.hex(), "dies", []),  # another life of the ID is no copy
        ]
        assert all(item["lost_since"] > 0 and item["nbytes"] == 100 for item in items)
        assert main(["cluster", "--cluster", url, "--lost"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].endswith("lost")
        assert "was on dies, lost since 20" in lines[0]
        assert lines[1].endswith("copies on stays")
