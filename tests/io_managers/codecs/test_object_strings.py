"""``object_strings="arrow"``: columns of text that were put with dtype ``object`` come back over the stored bytes."""

from __future__ import annotations

import pickle
from typing import Any

import entrepot
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from entrepot.codec import pack_tree, unpack_tree
from entrepot.errors import CorruptData, InvalidArgument

ROWS = 1000
TEXT = [f"text {number}" for number in range(ROWS)]


def series(values: list[Any]) -> pd.Series[Any]:
    return pd.Series(values, dtype=object)


def with_missing(missing: Any) -> list[Any]:
    return [missing if number % 3 == 0 else text for number, text in enumerate(TEXT)]


@pytest.mark.parametrize("length", [5, 63, 64, ROWS])
@pytest.mark.parametrize("missing", ["", None, np.nan, pd.NA], ids=repr)
def test_text_becomes_text_over_arrow(put: Any, missing: Any, length: int) -> None:
    values = with_missing(missing)[:length]
    stored = put(series(values))
    assert stored.get(object_strings="object").dtype == object
    back = stored.get(object_strings="arrow")
    assert isinstance(back.dtype, pd.StringDtype)
    assert back.dtype.storage == "pyarrow"
    assert (back.dtype.na_value is pd.NA) == (missing is pd.NA)
    assert back.isna().tolist() == [type(item) is not str for item in values]
    assert [item for item in back.tolist() if isinstance(item, str)] == [item for item in values if type(item) is str]


def test_nothing_is_copied(put: Any) -> None:
    stored = put(pd.DataFrame({"a": range(ROWS), "s": series(TEXT)}))
    back = stored.get(object_strings="arrow")
    assert list(back.columns) == ["a", "s"]
    arrow = pa.chunked_array(back["s"].array.__arrow_array__()).chunk(0)
    for buffer in arrow.buffers()[1:]:
        assert stored.holds(buffer.address, buffer.size)
    assert stored.get(object_strings="object")["s"].tolist() == TEXT


@pytest.mark.parametrize(
    "values",
    [
        [1, 2, 3],
        ["a", 1],
        ["a", None, np.nan],
        [None, None],
        [None] * 100,
        [],
        ["a", "\ud800"],
        ["a"] * 100 + ["\ud800"],
        [("a",)],
        [b"a"],
    ],
    ids=str,
)
def test_what_is_not_text_stays_as_it_is(put: Any, values: list[Any]) -> None:
    back = put(series(values)).get(object_strings="arrow")
    assert back.dtype == object
    assert repr(back.tolist()) == repr(values)


def test_labels_and_other_dtypes_stay_as_they_are(put: Any) -> None:
    frame = pd.DataFrame(
        {"c": pd.Categorical(TEXT), "p": pd.array(TEXT, dtype="string[python]")}, index=pd.Index(TEXT, dtype=object)
    )
    back = put(frame).get(object_strings="arrow")
    assert back.index.dtype == object
    assert repr(back.dtypes.tolist()) == repr(frame.dtypes.tolist())


def test_damage(put: Any) -> None:
    stored = put(series(TEXT))
    root = unpack_tree(stored.tree)
    node = root.children[0]
    node.children[0] = unpack_tree(put(pa.array(range(5), pa.int8())).tree)
    node.params[1] = root.params = 5
    root.children[1].params[1] = [0, 5, 1]
    stored.tree = pack_tree(root)
    with pytest.raises(CorruptData, match="text is of type int8"):
        stored.get(object_strings="arrow")
    node.version = 99
    stored.tree = pack_tree(root)
    with pytest.raises(entrepot.VersionMismatch):
        stored.get(object_strings="arrow")


def test_the_setting(module_daemon: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    address = module_daemon.address
    with entrepot.connect(address, scope="text", object_strings="arrow") as store:
        oid = store.put(series(TEXT), name="text")
        restored = pickle.loads(pickle.dumps(store))
        parts = store.collection("parts")
        parts.put(pd.DataFrame({"s": series(TEXT)}), index=0)
        for value in (
            store.get(oid),
            store.get_many([oid])[0],
            store.get_by_name("text"),
            store.session("other").get(oid),
            restored.get(oid),
            parts.seal(1)[0]["s"],
        ):
            assert isinstance(value.dtype, pd.StringDtype)
        restored.close()
    with entrepot.connect(address, scope="text") as store:
        assert store.get(oid).dtype == object
    monkeypatch.setenv("ENTREPOT_OBJECT_STRINGS", "arrow")
    with entrepot.connect(address, scope="text") as store:
        assert isinstance(store.get(oid).dtype, pd.StringDtype)
    with entrepot.connect(address, scope="text", object_strings="object") as store:
        assert store.get(oid).dtype == object
    monkeypatch.setenv("ENTREPOT_OBJECT_STRINGS", "polars")
    with pytest.raises(InvalidArgument, match="ENTREPOT_OBJECT_STRINGS"):
        entrepot.connect(address)
    with pytest.raises(InvalidArgument, match="object_strings"):
        entrepot.connect(address, object_strings=True)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
