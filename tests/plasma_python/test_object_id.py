"""``ObjectID``, and the errors' base classes."""

from __future__ import annotations

import pickle
import weakref

import entrepot
import pyarrow as pa
import pytest
from entrepot import plasma


def test_an_id_has_20_bytes() -> None:
    oid = plasma.ObjectID(b"0123456789abcdefghij")
    assert oid.binary() == b"0123456789abcdefghij"
    assert repr(oid) == str(oid) == f"ObjectID({oid.binary().hex()})"
    assert oid == plasma.ObjectID(oid.binary())
    assert hash(oid) == hash(plasma.ObjectID(oid.binary()))
    assert oid != plasma.ObjectID(bytes(20))
    assert oid != oid.binary()
    assert weakref.ref(oid)() is oid


@pytest.mark.parametrize("value", ["a" * 20, b"", bytes(19), bytes(21), bytearray(20), None])
def test_anything_else_is_no_id(value: object) -> None:
    with pytest.raises(ValueError, match="20 bytes"):
        plasma.ObjectID(value)  # type: ignore[arg-type]


def test_random_ids_differ_and_are_pickled() -> None:
    first, second = plasma.ObjectID.from_random(), plasma.ObjectID.from_random()
    assert first != second
    assert pickle.loads(pickle.dumps(first)) == first


@pytest.mark.parametrize(
    ("error", "own"),
    [
        (plasma.PlasmaObjectExists, entrepot.ObjectExists),
        (plasma.PlasmaObjectNotFound, entrepot.ObjectNotFound),
        (plasma.PlasmaStoreFull, entrepot.StoreFull),
        (plasma.PlasmaSerializationError, entrepot.UnsupportedType),
    ],
    ids=["exists", "not-found", "full", "serialization"],
)
def test_errors_are_those_of_pyarrow_and_of_entrepot(error: type[Exception], own: type[entrepot.EntrepotError]) -> None:
    assert issubclass(error, pa.ArrowException)
    assert issubclass(error, own)
    assert str(error("what was wrong")) == f"what was wrong [{own.short_code}]"


def test_a_name_of_the_tensorflow_operator_says_what_to_do() -> None:
    with pytest.raises(AttributeError, match="compiled from pyarrow's sources"):
        getattr(plasma, "build_plasma_tensorflow_op")  # noqa: B009
    with pytest.raises(AttributeError, match=r"no attribute 'nothing'$"):
        getattr(plasma, "nothing")  # noqa: B009
