"""A process that is killed, or stopped, while it writes a durable tier in the background."""

# Annotations are not postponed here: Dagster looks at those of assets.

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dagster import AssetKey, DagsterInstance, FilesystemIOManager, asset, materialize
from entrepot.errors import ObjectLost
from entrepot_dagster import EntrepotIOManager, TieredIOManager
from entrepot_io.connections import session_store
from entrepot_io.reference import Reference

pytestmark = [pytest.mark.usefixtures("own_store"), pytest.mark.slow, pytest.mark.e2e, pytest.mark.timeout(300)]

KEY = AssetKey("numbers")
PROGRAM = Path(__file__).with_name("tier_program.py")


@asset
def numbers() -> np.ndarray:
    raise AssertionError("only the program makes it")


@asset
def total(numbers: np.ndarray) -> int:
    return int(numbers.sum())


@contextmanager
def writing(folder: Path, wait_until: Callable[..., None]) -> Iterator[subprocess.Popen[bytes]]:
    """A process that has stored the asset, and writes its durable copy until the block ends."""
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, str(PROGRAM), str(folder)], stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        wait_until(lambda: (folder / "begun").exists() or process.poll() is not None, "the write", 120)
        assert process.poll() is None, (folder / "log").read_text()
        yield process
    finally:
        process.kill()
        process.wait(60)


def read(instance: DagsterInstance, folder: Path) -> Any:
    files = FilesystemIOManager(base_dir=str(folder / "files"))
    resources = {"io_manager": TieredIOManager(store=EntrepotIOManager(), durable=files, background=True)}
    result = materialize([numbers, total], selection=[total], instance=instance, resources=resources)
    return result.output_for_node("total")


def has_record(instance: DagsterInstance) -> bool:
    return instance.get_latest_materialization_event(KEY) is not None


def lose(instance: DagsterInstance) -> None:
    event = instance.get_latest_materialization_event(KEY)
    assert event is not None
    assert event.asset_materialization is not None
    reference = Reference.parse(event.asset_materialization.metadata["entrepot/reference"].value)
    assert session_store(None, reference.scope, reference.session, None).delete(reference.id)


@pytest.mark.parametrize("signal_sent", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_what_was_not_written_is_read_from_the_store_or_is_lost(
    signal_sent: signal.Signals, instance: DagsterInstance, tmp_path: Path, wait_until: Callable[..., None]
) -> None:
    older = tmp_path / "files" / "numbers"
    with writing(tmp_path, wait_until) as process:
        wait_until(lambda: has_record(instance), "the materialization")
        os.kill(process.pid, signal_sent)
        if signal_sent is signal.SIGKILL:
            process.wait(60)
        assert older.exists(), "an older value, which must never be read"
        assert read(instance, tmp_path) == 1000 * 999 // 2
        lose(instance)
        with pytest.raises(ObjectLost, match="goes on in another process, or was killed with that process"):
            read(instance, tmp_path)
        assert instance.fetch_observations(KEY, limit=1).records == []
