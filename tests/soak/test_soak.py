"""Ten clients, two of them Plasma's, and what must hold whatever they do: kills, stops, upgrades, memory pressure, an
unread log.

A model says what must exist, probes measure who is delayed, the kernel is asked how many daemons there are. Run once
with a store whose memory holds everything, and once with one that spills most of it.

``make soak`` runs it for ENTREPOT_SOAK_SECONDS (600 by default); ``make test`` for a short while. The report is written
to ``build/soak``; ENTREPOT_SOAK_SEED reproduces a run's events.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import entrepot
import numpy as np
import pytest
from entrepot._codecs.plasma_objects import PlasmaObject
from entrepot.errors import EntrepotError, ObjectNotFound

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "core"))

from journal import content, read_journal, violations
from plasma_checks import check_plasma_objects
from plasma_front_end import SoakFrontEnd
from pressure import Pressure
from soak_run import CLIENTS, Soak, wait_until
from stalls import Report
from store_processes import store_processes
from unread_log import UnreadLog

SECONDS = float(os.environ.get("ENTREPOT_SOAK_SECONDS", "10"))
SEED = int(os.environ.get("ENTREPOT_SOAK_SEED", str(int(time.time()))))
PLASMA_BYTES = {"memory": 64 << 20, "spilling": 16 << 20}
REPORTS = Path(__file__).parent.parent.parent / "build" / "soak"


@pytest.fixture(params=["memory", "spilling"])
def load(request: pytest.FixtureRequest) -> str:
    """Load of the workers; see worker.py."""
    return str(request.param)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[UnreadLog]:
    """Destination of the store's log."""
    unread = UnreadLog(tmp_path / "daemon.log")
    yield unread
    unread.end()


@pytest.fixture
def pressure() -> Iterator[Pressure]:
    """Control group of the store, if one can be created."""
    group = Pressure()
    yield group
    group.end()


@pytest.fixture
def address(
    tmp_path: Path, load: str, log: UnreadLog, pressure: Pressure, answers: Callable[[str], bool]
) -> Iterator[str]:
    """Address of a separate store; processes left at the end are killed by PID."""
    spill = ("--spill-path", f"{tmp_path}/a,{tmp_path}/b", "--spill-quota", "2GiB", "--spill-reserve", "64MiB")
    options = ("--size", "512MiB", "--spill-path", "none") if load == "memory" else ("--size", "64MiB", *spill)
    address = f"unix://{tmp_path}/store.sock"
    keeper = subprocess.Popen(
        pressure.enter([sys.executable, "-m", "entrepot.daemon_main", "--address", address, *options]),
        stdout=log.writer,
        stderr=log.writer,
    )
    os.close(log.writer)
    try:
        wait_until(lambda: answers(address) or keeper.poll() is not None, 20, "the store to listen")
        assert keeper.poll() is None, "the store ended at its start"
        yield address
    finally:
        for process in store_processes(address):  # a failed test may leave one stopped
            os.kill(process.pid, signal.SIGCONT)
        try:
            status = entrepot.connect(address).status()
            os.kill(status["keeper_pid"], signal.SIGTERM)
        except (EntrepotError, ProcessLookupError) as error:
            print(f"the store was gone at the end: {error}")
        if keeper.poll() is None:
            keeper.terminate()
        try:
            keeper.wait(20)
        except subprocess.TimeoutExpired:
            keeper.kill()
            keeper.wait()


def check_model(store: entrepot.Store, folder: Path) -> int:
    """Check that every object that must exist does, with its content, and none that must not. Returns their number."""
    checked_count = 0
    for path in sorted(folder.glob("*.journal")):
        assert violations(path) == []
        for key, state in read_journal(path).items():
            try:
                value = store.get(store.derive(key))
            except ObjectNotFound:
                assert not state.must_exist, f"{key} was sealed and never deleted, and is lost"
                continue
            assert not state.must_not_exist, f"{key} was deleted and is still there"
            if isinstance(value, PlasmaObject):
                value = np.frombuffer(value.data, dtype=np.uint8)
            assert np.array_equal(value, content(key, state.size)), f"{key} has other content"
            checked_count += 1
    return checked_count


def check_nothing_leaks(store: entrepot.Store, folder: Path) -> None:
    """After the last object is deleted, no memory is in use."""
    for path in folder.glob("*.journal"):
        for key in read_journal(path):
            store.delete(store.derive(key))
    wait_until(lambda: len(store.status()["clients"]) == 1, 30, "the killed clients to be noticed")
    wait_until(lambda: store.status()["deferred_frees"] == 0, 30, "the last deferred free")
    status = store.status()
    leaks = {name: status[name] for name in ("objects", "blobs", "used_bytes", "pinned_bytes", "leased_bytes")}
    assert leaks == dict.fromkeys(leaks, 0), f"seed {SEED}: something leaked"


@pytest.mark.timeout(SECONDS + 300)
def test_nothing_is_lost_nothing_leaks_and_nobody_is_kept_waiting(
    address: str, tmp_path: Path, load: str, log: UnreadLog, pressure: Pressure
) -> None:
    folder = tmp_path / "journals"
    folder.mkdir()
    print(f"\nENTREPOT_SOAK_SEED={SEED} ENTREPOT_SOAK_SECONDS={SECONDS:g}, {load}")
    store = entrepot.connect(address, scope="soak", session="")
    report = Report(load, SEED)
    front_end = SoakFrontEnd(address, tmp_path, PLASMA_BYTES[load])
    soak = Soak(address, folder, report, log, pressure, store, front_end)
    try:
        try:
            soak.start_all()
            soak.run(SECONDS)
        finally:
            soak.end()
        soak.check_duplicates()
        soak.judge()
        report.objects_at_end = check_model(store, folder)
        report.plasma_objects_at_end = check_plasma_objects(store, front_end.socket, folder)
    except AssertionError as error:
        report.broken.append(str(error))
        raise
    finally:
        front_end.end()
        report.log_lines_dropped["told by the log"] = log.lines_dropped()
        print(report.write(REPORTS))
    operations = sum(len(path.read_text().splitlines()) for path in folder.glob("*.journal"))
    assert operations > CLIENTS * SECONDS, "the workers hardly worked"
    if load == "spilling":
        assert store.status()["spill"]["loads"] > 0, "nothing was spilled and came back"
    check_nothing_leaks(store, folder)
    assert report.broken == [], f"seed {SEED}"
