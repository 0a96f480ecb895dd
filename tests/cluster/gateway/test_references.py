"""Which collections a value refers to is in its tree, so that marks of lost objects need no decoding."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import entrepot
import numpy as np
import pytest
from entrepot_cluster.gateway.references import MAX_DOCUMENT_BYTES, references_in

pytestmark = pytest.mark.timeout(120)


class Box:
    """A class that only pickle can store."""

    def __init__(self, content: Any) -> None:
        self.content = content


LONG = "x" * (MAX_DOCUMENT_BYTES + 1)
CASES: dict[str, Callable[[Any], Any]] = {
    "in plain data": lambda collection: {"one": [collection]},
    "in long plain data": lambda collection: {"text": LONG, "one": [collection]},
    "in a pickle": lambda collection: Box({"one": collection}),
    "in a long pickle": lambda collection: Box([LONG, collection]),
    "in a pickle of long plain data": lambda collection: deque([{"text": LONG, "one": collection}]),
}


@pytest.mark.parametrize("value_of", CASES.values(), ids=CASES)
def test_collections_in_values_are_found(daemon: Any, value_of: Callable[[Any], Any]) -> None:
    with entrepot.connect(daemon.address) as store:
        builder = store.collection("rows")
        for index in range(2):
            builder.put(np.arange(3), index=index)
        collection = builder.seal()
        for part in (collection, collection[1:]):
            oid = store.put(value_of(part))
            (referred,) = references_in(store, oid)
            assert referred.oid == collection.id.binary
            assert (referred.positions is None) == (part is collection)
            assert isinstance(store.get(oid), type(value_of(None)))
            store.delete(oid)
