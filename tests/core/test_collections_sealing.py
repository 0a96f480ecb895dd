"""Sealing while members are replaced, and the locality set that members belong to."""

from __future__ import annotations

from typing import Any

import entrepot
import numpy as np
import pytest
from entrepot._collections.builder import CollectionBuilder

LENGTHS = (10_000, 20_000)


def _open_builder(store: entrepot.Store) -> CollectionBuilder:
    builder = store.collection("arrays")
    for index in range(3):
        builder.put(np.full(LENGTHS[0], index), index=index)
    return builder


def _other_value() -> Any:
    return np.full(LENGTHS[1], 7)


def test_a_member_that_is_replaced_while_it_is_sealed_counts(
    store: entrepot.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder, another = _open_builder(store), store.collection("arrays")
    gathered = builder._gather_members
    done: list[entrepot.ObjectID] = []

    def then_replaced(*arguments: Any) -> Any:
        result = gathered(*arguments)
        if not done:
            done.append(another.put(_other_value(), index=1, replace=True))
        return result

    monkeypatch.setattr(builder, "_gather_members", then_replaced)
    sealed = builder.seal(3)
    assert sealed.row_counts == [LENGTHS[0], LENGTHS[1], LENGTHS[0]]
    assert [int(value[0]) for value in sealed] == [0, 7, 2]
    assert sealed == store.get_by_name("arrays")


def test_members_that_are_replaced_all_the_time_are_not_sealed(
    store: entrepot.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder, another = _open_builder(store), store.collection("arrays")
    gathered, turns = builder._gather_members, iter(range(100))

    def then_replaced(*arguments: Any) -> Any:
        result = gathered(*arguments)
        another.put(np.full(LENGTHS[0], 100 + next(turns)), index=1, replace=True)
        return result

    monkeypatch.setattr(builder, "_gather_members", then_replaced)
    with pytest.raises(entrepot.ObjectExists, match="replaced during each of"):
        builder.seal(3)
    assert not builder.sealed
    with pytest.raises(entrepot.ObjectNotFound):
        store.get_by_name("arrays")


def test_who_replaces_a_member_of_what_was_just_sealed_is_told(
    store: entrepot.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder, another = _open_builder(store), store.collection("arrays")
    refuse = another._refuse_if_sealed

    def then_sealed(*arguments: Any) -> None:
        refuse(*arguments)
        builder.seal(3)

    monkeypatch.setattr(another, "_refuse_if_sealed", then_sealed)
    with pytest.raises(entrepot.ObjectExists, match="member 1 was being replaced"):
        another.put(_other_value(), index=1, replace=True)
    assert not builder.sealed
    assert [int(value[0]) for value in builder.seal(3)] == [0, 7, 2]


def _set_of(store: entrepot.Store, oid: entrepot.ObjectID) -> str:
    return store.info(oid).locality_set


def test_members_have_a_locality_set_of_their_own(store: entrepot.Store) -> None:
    builder = _open_builder(store)
    assert builder.locality_set == "collection:arrays"
    assert [_set_of(store, builder.member_id(index)) for index in range(3)] == ["collection:arrays"] * 3
    (members_set,) = (
        locality_set for locality_set in store.locality_sets() if locality_set.name == "collection:arrays"
    )
    assert (members_set.objects, members_set.reading) == (3, "unknown")
    store.collection("arrays", reading="random").append(np.arange(10))
    store.collection("arrays").append(np.arange(11))  # unspecified options change nothing
    (members_set,) = (
        locality_set for locality_set in store.locality_sets() if locality_set.name == "collection:arrays"
    )
    assert (members_set.objects, members_set.reading) == (5, "random")
    with pytest.raises(entrepot.InvalidArgument, match="reading must be one of"):
        store.collection("arrays", reading="sideways").append(b"x")  # type: ignore[arg-type]


def test_members_are_put_into_the_set_that_is_named(store: entrepot.Store) -> None:
    features = store.locality_set("features", reading="loop_sequential")
    first = store.collection("a", locality_set=features)
    second = store.collection("b", locality_set="features")
    default = store.collection("c", locality_set="")
    ids = [builder.put(np.arange(100), index=0) for builder in (first, second, default)]
    assert [_set_of(store, oid) for oid in ids] == ["features", "features", ""]
    assert (first.locality_set, second.locality_set, default.locality_set) == ("features", "features", "")
    with pytest.raises(entrepot.ObjectNotFound, match="'none'"):
        store.collection("d", locality_set="none").append(b"x")


def test_the_longest_name_has_a_set_too(store: entrepot.Store) -> None:
    builder = store.collection("n" * 255)
    oid = builder.put(np.arange(100), index=0)
    assert _set_of(store, oid) == builder.locality_set == f"collection:{builder.id}"
