"""Lineage can be read by anyone with a reference, even after its writer was killed, and its size is bounded."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import entrepot
import pytest
from entrepot import raw_objects
from entrepot.errors import CorruptData, InvalidArgument, VersionMismatch
from entrepot_policy.recovery.rerun_api import LineageGraph
from entrepot_policy.rules.match_target import Task
from entrepot_policy.state import lineage, records
from entrepot_policy.state.lineage import Lineage, ObjectRef

TASK = Task("airflow", "etl", "manual__2026", "load[3]")


def ref(store: entrepot.Store, name: str, session: str = "run-1") -> ObjectRef:
    return ObjectRef(session, store.derive(name), name, store.instance_id, 7)


def lineage_of(store: entrepot.Store, inputs: list[ObjectRef], name: str = "out") -> Lineage:
    kept, complete = lineage.distinct_inputs(inputs)
    tags = ("heavy", "kind=model")
    return Lineage(ref(store, name), TASK, kept, complete, 1.5, 100.0, True, "a/b", "d", tags, "pandas.DataFrame", 5)


@pytest.mark.parametrize("count", [0, 1, 60, 700])
def test_what_was_written_is_read(store: entrepot.Store, count: int) -> None:
    wrote = lineage_of(store, [ref(store, f"in-{i}-{'ü' * 20}", "") for i in range(count)])
    pages = lineage.write(store, wrote)
    assert lineage.read(store, wrote.output) == wrote
    assert lineage.page_ids(store, wrote.output) == pages
    assert all(len(raw_objects.get_record(store, oid) or b"") < raw_objects.SMALL_BYTES for oid in pages)
    with entrepot.connect(store.address, scope="tests", session="elsewhere") as other:
        graph = LineageGraph(lambda: other)
        assert graph.maker(wrote.output) == TASK
        assert graph.inputs(TASK, wrote.output) == wrote.inputs
        assert graph.inputs(Task("airflow", "etl", "another", "load[3]"), wrote.output) is None


def test_a_record_of_the_longest_texts_fits(store: entrepot.Store) -> None:
    long = '"' * 5000
    tags = tuple(f"{number}{long}" for number in range(50))
    inputs = tuple(ObjectRef("s" * 240, entrepot.ObjectID.random(), long, "f" * 32, 2**63 - 1) for _ in range(40))
    wrote = Lineage(
        ref(store, "out"), Task(long, long, long, long), inputs, True, 1e9, 1e9, True, long, long, tags, long
    )
    lineage.write(store, wrote)
    record = lineage.read(store, wrote.output)
    assert record is not None
    assert [reference.id for reference in record.inputs] == [reference.id for reference in inputs]
    assert len(record.tags) == lineage.MAX_TAGS


def test_inputs_are_bounded_and_it_says_so(store: entrepot.Store) -> None:
    many = [ObjectRef("", entrepot.ObjectID.random(), f"k{i}") for i in range(lineage.MAX_INPUTS + 5)]
    wrote = lineage_of(store, [*many, *many])
    assert len(wrote.inputs) == lineage.MAX_INPUTS
    lineage.write(store, wrote)
    record = lineage.read(store, wrote.output)
    assert record is not None
    assert not record.complete
    assert LineageGraph(lambda: store).inputs(TASK, wrote.output) is None, "a plan from part of it would be wrong"
    raw_objects.discard(store, lineage.page_ids(store, wrote.output)[3])
    assert (again := lineage.read(store, wrote.output)) is not None
    assert not again.complete


def test_records_that_nobody_wrote_are_refused(store: entrepot.Store) -> None:
    out = ref(store, "out")
    key = lineage.record_key(out.id)
    oid = records.record_id("tests", "run-1", key)
    assert lineage.read(store, out) is None
    for data in (b"", b"[]", b"{}", b'{"entrepot_record": 1}', b'{"entrepot_record": 1, "pages": 10000}'):
        raw_objects.put_record(store, oid, data)
        with pytest.raises(CorruptData):
            lineage.read(store, out)
    raw_objects.put_record(store, oid, b'{"entrepot_record": 99}')
    with pytest.raises(VersionMismatch, match="format version 99"):
        lineage.read(store, out)
    with pytest.raises(InvalidArgument, match="the maximum is"):
        records.put(store, "big", {"x": "y" * 20_000})


@pytest.mark.parametrize("pages", [0, -1, lineage.MAX_INPUTS + 1])
def test_a_number_of_pages_that_nobody_writes_is_refused(store: entrepot.Store, pages: int) -> None:
    wrote = lineage_of(store, [ref(store, "in")])
    lineage.write(store, wrote)
    key = lineage.record_key(wrote.output.id)
    head = records.get(store, key)
    assert head is not None
    records.put(store, key, head | {"pages": pages})
    for read in (lineage.read, lineage.page_ids):
        with pytest.raises(CorruptData, match="invalid number of pages"):
            read(store, wrote.output)


WRITER = """
import os, signal, sys, entrepot
from entrepot_policy.state import lineage
from entrepot_policy.state.lineage import Lineage, ObjectRef
from entrepot_policy.rules.match_target import Task
store = entrepot.connect(sys.argv[1], scope="tests", session="run-1")
oid = store.put(b"x" * 100_000, id=store.derive("out"))
made = Lineage(ObjectRef("run-1", oid, "out"), Task("airflow", "etl", "r", "t"), (), True, 1.0, 1.0)
lineage.write(store, made)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_lineage_survives_the_writer(store: entrepot.Store) -> None:
    done = subprocess.run([sys.executable, "-c", WRITER, store.address], timeout=60, env=os.environ)
    assert done.returncode == -signal.SIGKILL
    record = lineage.read(store, ref(store, "out"))
    assert record is not None
    assert record.task.name == "t"
