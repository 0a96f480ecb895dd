"""The examples in docstrings and pages use a store of their own, at ENTREPOT_ADDRESS; not the private store of whoever
runs them.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.doctest import DoctestItem


@pytest.fixture(scope="session")
def address_of_examples() -> Iterator[str]:
    """A store that all examples of a process share."""
    with tempfile.TemporaryDirectory(prefix="entrepot-examples-") as folder:
        address = f"unix://{folder}/store.sock"
        command = [sys.executable, "-m", "entrepot.daemon_main", "--address", address, "--size", "128MiB"]
        ready, ready_end = os.pipe()
        with (Path(folder) / "log").open("wb") as log:
            keeper = subprocess.Popen(
                [*command, "--spill-path", "none", "--ready-fd", str(ready_end)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[ready_end],
            )
        os.close(ready_end)
        try:
            with open(ready, "rb") as pipe:
                assert pipe.readline() == b"ready\n", (Path(folder) / "log").read_text(encoding="utf-8")
            yield address
        finally:
            keeper.terminate()
            keeper.wait(30)


@pytest.fixture(autouse=True)
def _store_of_examples(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    item = request.node
    if isinstance(item, DoctestItem) and "entrepot_kedro" in item.name:
        import kedro.framework.project  # noqa: F401 - writes to standard output when it is first imported
    if isinstance(item, DoctestItem) and "entrepot_dagster" in item.name:
        # Kedro, once imported, shows everybody's log on standard output.
        logging.getLogger("alembic.runtime.migration").setLevel(logging.WARNING)
    if isinstance(item, DoctestItem) and any("entrepot" in example.source for example in item.dtest.examples):
        monkeypatch.setenv("ENTREPOT_ADDRESS", request.getfixturevalue("address_of_examples"))
