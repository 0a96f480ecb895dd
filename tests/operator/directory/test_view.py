"""The copy of a directory: the same answers as an ordered table, whatever changes arrive in whatever shards."""

from __future__ import annotations

import threading
from typing import Any

from entrepot_cluster.directory.backends.interface import Entry
from entrepot_cluster.directory.codec import name_prefix, place_prefix, session_prefix, with_number
from entrepot_operator.directory import leases, shards
from entrepot_operator.directory.shards import Head
from entrepot_operator.directory.view import LeaseView, ShardView
from hypothesis import given
from hypothesis import strategies as st

PREFIXES = [
    *(place_prefix(bytes([first]) * 20) for first in (0, 1, 255)),
    *(name_prefix("scope", "run", name) for name in ("a", "a\x00", "ab", "\xff")),
    session_prefix(b"12345678"),
]
CONTENTS = st.dictionaries(st.sampled_from(PREFIXES), st.binary(min_size=1, max_size=3), max_size=5)
CHANGES = st.lists(
    st.tuples(st.sampled_from([1, 2, 1 << 31]), st.integers(0, 2), st.integers(1, 3), st.none() | CONTENTS), max_size=12
)


def resource(manifest: dict[str, Any], version: int) -> dict[str, Any]:
    manifest["metadata"] |= {"uid": f"uid-{manifest['metadata']['name']}", "resourceVersion": str(version)}
    return manifest


def table_of(contents: dict[tuple[int, int], tuple[int, dict[bytes, bytes]]]) -> dict[bytes, bytes]:
    """What counts, by whole keys."""
    table: dict[bytes, bytes] = {}
    for (number, _), (_, entries) in sorted(contents.items(), key=lambda item: (item[1][0], item[0][1])):
        table.update({with_number(prefix, number): value for prefix, value in entries.items()})
    return table


def check(view: ShardView, table: dict[bytes, bytes]) -> None:
    ordered = [Entry(key, table[key]) for key in sorted(table)]
    for prefix in [*PREFIXES, b"p", b"n", b"s", PREFIXES[3][:9]]:
        expected = [entry for entry in ordered if entry.key.startswith(prefix)]
        assert view.with_prefix(prefix) == expected
        pages, last = [], b""
        while page := view.page(prefix, last, 2):
            pages += page
            last = page[-1].key
        assert pages == expected
    for key, value in table.items():
        assert view.get(key) == value
    assert view.get(with_number(PREFIXES[0], 99)) is None


@given(CHANGES, CHANGES)
def test_it_answers_like_an_ordered_table(changes: list[Any], later: list[Any]) -> None:
    view = ShardView("c", threading.Condition())
    contents: dict[tuple[int, int], tuple[int, dict[bytes, bytes]]] = {}
    for version, (number, index, term, entries) in enumerate(changes):
        gone = entries is None
        manifest = resource(shards.shard_manifest("c", number, index, term, entries or {}, None), version)
        view.change(manifest, gone=gone)
        if gone:
            contents.pop((number, index), None)
        else:
            contents[number, index] = (term, entries)
        if version % 3 == 0:
            check(view, table_of(contents))
    check(view, table_of(contents))
    replaced = {(number, index): (term, entries or {}) for number, index, term, entries in later}
    view.put(
        resource(shards.shard_manifest("c", number, index, term, entries, None), 100)
        for (number, index), (term, entries) in replaced.items()
    )
    check(view, table_of(replaced))


def test_it_tells_how_new_it_is() -> None:
    view = ShardView("c", threading.Condition())
    head = resource(shards.head_manifest("c", "1"), 5)
    uid = head["metadata"]["uid"]
    assert not view.reached(Head(uid, 5, 0))
    view.change(head, gone=False)
    assert not view.reached(Head(uid, 5, 0))  # what was there before has not been read
    view.put([head])
    assert view.reached(Head(uid, 5, 0))
    assert not view.reached(Head(uid, 6, 0))
    assert not view.reached(Head("another", 4, 0))
    view.change(resource(shards.head_manifest("c", "2"), 7), gone=False)
    assert view.reached(Head(uid, 6, 0))
    view.invalidate()
    assert not view.reached(Head(uid, 6, 0))
    view.put([resource(shards.head_manifest("c", "2"), 3)])  # of a backup
    assert view.reached(Head(uid, 3, 0))
    view.change(head, gone=True)
    assert not view.reached(Head(uid, 3, 0))
    assert not view.wait_until(lambda: view.reached(Head(uid, 3, 0)), 0.0)


def test_the_control_shard_is_read_by_key_and_by_prefix() -> None:
    view = ShardView("c", threading.Condition())
    entries = {b"m": b"0", b"i\x00\x00\x00\x01": b"record", b"i odd": b"", b"x" + bytes(16): b"1"}
    control = resource(shards.shard_manifest("c", None, 0, 0, entries, None), 1)
    view.change(control, gone=False)
    assert view.get(b"m") == b"0"
    assert view.with_prefix(b"i") == [Entry(b"i odd", b""), Entry(b"i\x00\x00\x00\x01", b"record")][::-1]
    assert view.records() == {1: b"record", int.from_bytes(b" odd", "big"): b""}
    view.change(control, gone=True)
    assert view.get(b"m") is None
    assert view.records() == {}


def test_leases_are_valid_until_they_end() -> None:
    view = LeaseView("c", threading.Condition())
    view.put([resource(leases.lease_manifest("c", 1, "token", 10.0, 1000.0), 1), {"metadata": {"name": "other"}}])
    view.change(resource(leases.lease_manifest("c", 2, "token", 2.5, 1000.25), 2), gone=False)
    assert sorted(view.live(1003.0)) == [1, 2]  # lasting whole seconds
    assert view.next_end(1003.0) == 0.25
    assert sorted(view.live(1003.5)) == [1]
    assert view.next_end(1010.0) == float("inf")
    view.change(resource(leases.lease_manifest("c", 1, "token", 10.0, 1000.0), 3), gone=True)
    assert view.live(1003.5) == {}
