"""Locality sets, hints and consumers in Python, against a daemon that spills."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import entrepot
import pytest
from entrepot import cli
from entrepot.errors import InvalidArgument, ObjectNotFound

MIB = 1 << 20


@pytest.fixture(scope="module")
def spilling(start_daemon: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("spill")
    folder.chmod(0o700)
    return start_daemon("96MiB", "--spill-path", str(folder))


@pytest.fixture
def small(spilling: Any, request: pytest.FixtureRequest) -> Iterator[entrepot.Store]:
    """A separate session in a store of 96 MiB that spills."""
    with entrepot.connect(spilling.address, scope="tests", session=request.node.name) as store:
        yield store
        store.remove_session(request.node.name)


def test_a_set_is_made_changed_and_found_again(small: entrepot.Store, spilling: Any) -> None:
    created = small.locality_set("features", reading="loop_sequential", priority=2)
    assert (created.reading, created.priority, created.policy, created.lifetime) == (
        "loop_sequential",
        2,
        "data_aware",
        "job",
    )
    changed = small.locality_set("features", durability="write_through")
    assert changed.handle == created.handle
    assert (changed.reading, changed.priority, changed.durability) == ("loop_sequential", 2, "write_through")
    oid = small.put(bytes(MIB), locality_set=created)
    other = small.put(bytes(MIB), locality_set="features")
    plain = small.put(bytes(MIB))
    assert small.info(oid).locality_set == small.info(other).locality_set == "features"
    assert small.info(plain).locality_set == ""
    default, features = small.locality_sets()
    assert (default.name, default.objects, default.handle) == ("", 1, 0)
    assert (features.name, features.objects, features.nbytes) == ("features", 2, 2 * MIB)
    with entrepot.connect(spilling.address, scope="tests", session=small.session_name) as second:
        assert second.locality_set("features") == features


def test_the_default_set_of_a_session_can_be_described(small: entrepot.Store) -> None:
    oid = small.put(bytes(MIB))
    small.locality_set("", reading="once")
    (default,) = small.locality_sets()
    assert (default.reading, default.reading_now, default.objects) == ("once", "once", 1)
    assert "its set is read once" in small.info(oid).why


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"reading": "backwards"}, "reading must be one of 'unknown', 'once'"),
        ({"policy": "fifo"}, "policy must be one of 'data_aware', 'lru', 'mru'"),
        ({"priority": 9}, "from -8 to 8, but got 9"),
        ({"priority": "high"}, "from -8 to 8, but got 'high'"),
        ({"consumers": 0}, "from 1 to 4,294,967,295, but got 0"),
        ({"lifetime": "consumers"}, "needs the number of consumers"),
        ({"lifetime": "forever", "consumers": 2}, "has no number of consumers"),
    ],
)
def test_attributes_that_are_not_there_are_named(small: entrepot.Store, arguments: Any, says: str) -> None:
    with pytest.raises(InvalidArgument, match=says):
        small.locality_set("wrong", **arguments)
    assert [locality_set.name for locality_set in small.locality_sets()] == [""]


def test_sets_and_hints_that_do_not_fit_are_refused(small: entrepot.Store) -> None:
    oid = small.put(bytes(MIB))
    other_session = small.session("elsewhere")
    foreign_set = other_session.locality_set("theirs")
    with pytest.raises(InvalidArgument, match="'theirs' belongs to session 'elsewhere'"):
        small.put(bytes(MIB), locality_set=foreign_set)
    with pytest.raises(ObjectNotFound, match="no locality set 'nowhere'"):
        small.put(bytes(MIB), locality_set="nowhere")
    with pytest.raises(InvalidArgument, match="an operation applies to a set"):
        small.hint(oid, operation="reading")
    with pytest.raises(InvalidArgument, match="are for objects"):
        small.hint(small.locality_set("own"), keep=True)
    with pytest.raises(ObjectNotFound):
        small.hint(entrepot.ObjectID.random(), priority=1)
    small.remove_session("elsewhere")


def test_what_is_kept_stays_and_what_is_said_can_be_seen(small: entrepot.Store) -> None:
    kept = small.put(bytes(8 * MIB))
    first = small.put(bytes(8 * MIB))
    small.hint(kept, keep=True, priority=-3)
    info = small.info(kept)
    assert (info.kept, info.priority) == (True, -3)
    with pytest.raises(InvalidArgument, match="unpin it first"):
        small.evict(kept)
    others = [small.put(bytes(8 * MIB)) for _ in range(16)]
    assert small.info(kept).state == "sealed"
    assert small.info(first).state == "spilled"
    small.hint(kept, keep=False)
    small.evict(kept)
    assert small.get(others[0]) == bytes(8 * MIB)


def test_the_dead_go_first_and_are_not_written(small: entrepot.Store) -> None:
    consumed_oid = small.put(bytes(8 * MIB), consumers=2)
    needed_oid = small.put(bytes(8 * MIB), consumers=2)
    assert small.consumed(consumed_oid, "train") == 1
    assert small.consumed(consumed_oid, "train") == 1  # the task is retried
    assert small.consumed(consumed_oid, "report") == 0
    assert small.info(consumed_oid).dead
    assert small.info(needed_oid).consumers_left == 2
    assert small.get(consumed_oid) == bytes(8 * MIB)  # it is kept until memory is short
    for _ in range(16):
        small.put(bytes(8 * MIB))
    assert not small.exists(consumed_oid)
    assert small.exists(needed_oid)
    assert small.consumed(consumed_oid, "report") == 0
    with pytest.raises(InvalidArgument, match="no number of consumers was set"):
        small.consumed(small.put(b"x"), "a")


def test_a_session_can_delete_what_its_last_consumer_had(small: entrepot.Store) -> None:
    with small.session("short", delete_consumed=True) as session:
        locality_set = session.locality_set("once", consumers=1)
        oid = session.put(bytes(MIB), locality_set=locality_set)
        assert session.info(oid).consumers == 1
        value = session.get(oid)
        assert session.consumed(oid, "only") == 0
        assert not session.exists(oid)
        assert value == bytes(MIB)  # readers keep the value
        assert [info.deletes_consumed for info in session.sessions() if info.session == "short"] == [True]
    small.remove_session("short")


READER_CODE = """
import sys
import entrepot
store = entrepot.connect(sys.argv[1], scope="tests", session=sys.argv[2])
ids = [info.id for info in sorted(store.list(), key=lambda info: info.created)]
for _ in range(int(sys.argv[3])):
    for oid in ids:
        store.get(oid)
"""


def test_scans_in_other_processes_are_recognised(small: entrepot.Store, spilling: Any) -> None:
    """Accesses that readers note in their own tables reach the daemon."""
    ids = [small.put(bytes(4 * MIB)) for _ in range(36)]  # 144 MiB
    subprocess.run(
        [sys.executable, "-c", READER_CODE, spilling.address, small.session_name, "2"], check=True, timeout=120
    )
    (default,) = small.locality_sets()
    assert default.reading == "unknown"
    assert default.reading_now == "loop_sequential"
    assert any("its set seems to be read in repeated scans" in small.info(oid).why for oid in ids)


def test_commands_show_sets(small: entrepot.Store, spilling: Any, capsys: pytest.CaptureFixture[str]) -> None:
    small.locality_set("features", reading="once", priority=1)
    oid = small.put(bytes(MIB), locality_set="features")
    options = ["--address", spilling.address, "--scope", "tests", "--session", small.session_name]
    assert cli.main(["sets", *options]) == 0
    output = capsys.readouterr().out
    assert "features" in output
    assert "(default)" in output
    assert cli.main(["sets", "--json", *options]) == 0
    assert [row["name"] for row in json.loads(capsys.readouterr().out)] == ["", "features"]
    assert cli.main(["ls", *options]) == 0
    assert "features" in capsys.readouterr().out
    assert cli.main(["info", str(oid), *options]) == 0
    output = capsys.readouterr().out
    assert "locality_set" in output
    assert "no other object is evicted before it" in output


def _moved_bytes(start_daemon: Callable[..., Any], folder: Path, policy: str, passes: int) -> int:
    """Bytes that the daemon writes and reads for scans over twice the memory."""
    folder.mkdir(mode=0o700)
    daemon = start_daemon("128MiB", "--spill-path", str(folder))
    with entrepot.connect(daemon.address, scope="tests") as store:
        reading = "loop_sequential" if policy == "data_aware" else "unknown"
        loop = store.locality_set("loop", policy=policy, reading=reading)  # type: ignore[arg-type]
        ids = [store.put(bytes(4 * MIB), locality_set=loop) for _ in range(64)]
        for _ in range(passes):
            for oid in ids:
                assert len(store.get(oid)) == 4 * MIB
        status = store.status()
    daemon.stop()
    return int(status["spill"]["written_bytes"]) + int(status["spill"]["read_bytes"])


@pytest.mark.slow
def test_a_loop_over_twice_the_memory_moves_much_less_than_with_lru(
    start_daemon: Callable[..., Any], tmp_path: Path
) -> None:
    lru = _moved_bytes(start_daemon, tmp_path / "lru", "lru", 8)
    aware = _moved_bytes(start_daemon, tmp_path / "aware", "data_aware", 8)
    assert lru / aware >= 1.6, (lru, aware)
