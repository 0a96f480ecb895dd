"""Tasks that Airflow runs as another user, who has a store of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from reachable_folders import can_be_reached, reachable
from recorded_steps import run_program

pytestmark = [
    pytest.mark.slow,
    pytest.mark.e2e,
    pytest.mark.exhaustive,  # an `airflow standalone` of its own
    pytest.mark.timeout(700),
    pytest.mark.skipif(shutil.which("sudo") is None, reason="sudo is not installed"),
    pytest.mark.skipif(os.getuid() != 0, reason="only root can start tasks of other users"),
]

OTHER_USER = "nobody"
OTHER_UID = 65534
PROGRAM = Path(__file__).with_name("run_as_user_dags.py")


@pytest.fixture(scope="module")
def run(airflow_database: Any) -> Iterator[Any]:
    """The run's states, values and logs. Both users' stores are in this folder, and end with it."""
    if not can_be_reached():  # tried here, since it mounts folders
        pytest.skip("there are no mount namespaces here, in which other users could reach Python")
    folder = Path(tempfile.mkdtemp(prefix="ru-"))  # a short path: a socket's is limited to 107 bytes
    folder.chmod(0o755)
    (folder / "run").mkdir(mode=0o700)
    (folder / "tmp").mkdir()
    (folder / "tmp").chmod(0o1777)
    store = f"unix://{folder}/run/entrepot/store.sock"
    environment = (
        os.environ
        | airflow_database()
        | {
            "XDG_RUNTIME_DIR": str(folder / "run"),
            "TMPDIR": str(folder / "tmp"),
            "AIRFLOW__ENTREPOT__SCOPE": "tests",
            "OTHER_USER": OTHER_USER,
            "STORE_OF_AIRFLOW": store,
        }
    )
    file = folder / "found.json"
    try:
        command = reachable([sys.executable, str(PROGRAM), str(file)])
        yield run_program(command, file, environment=environment, folder=folder).value("users")
    finally:
        own = f"unix://{folder}/tmp/entrepot-{OTHER_UID}/store.sock"
        for user, address in (("root", store), (OTHER_USER, own)):
            stop = ["sudo", "-u", user, sys.executable, "-m", "entrepot", "stop", "--address", address]
            subprocess.run(reachable(stop), check=False, timeout=60)
        shutil.rmtree(folder, ignore_errors=True)


def test_tasks_of_another_user_hand_values_to_each_other(run: Any) -> None:
    assert (run["states"]["make_own"], run["states"]["read_own"]) == ("success", "success"), run["logs"]["make_own"]
    assert run["entries"]["make_own"]["entrepot"] == 1
    assert run["entries"]["read_own"] == [4000, OTHER_UID]


def test_plain_data_reaches_another_user(run: Any) -> None:
    assert run["entries"]["read_plain"] == [0, OTHER_UID], run["logs"]["read_plain"]


def test_a_value_of_another_user_is_an_error_that_says_so(run: Any) -> None:
    assert (run["states"]["make"], run["states"]["read"]) == ("success", "failed")
    assert "is not in this store" in run["logs"]["read"]
    assert "as another user" in run["logs"]["read"]


def test_the_store_of_another_user_denies_access(run: Any) -> None:
    assert run["states"]["make_at_address"] == "failed"
    assert "each user has their own store" in run["logs"]["make_at_address"]
