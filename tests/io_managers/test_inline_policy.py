"""Values that an orchestrator stores itself, descriptions of values, and sources of settings."""

from __future__ import annotations

import json
from collections import OrderedDict
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from entrepot.errors import InvalidArgument
from entrepot.phrases import human_bytes
from entrepot_io.inline_policy import stays_inline
from entrepot_io.settings import resolve
from entrepot_io.type_info import shape_of, type_name
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    "value",
    [None, True, 0, -(2**70), 1.5, "", "text", [], {}, {"a": [1, {"b": None}], "c": "ü"}, ["x"] * 100, "x" * 4000],
)
def test_small_plain_values_stay(value: Any) -> None:
    assert stays_inline(value)
    assert json.loads(json.dumps(value)) == value


class Text(str):
    __slots__ = ()


@pytest.mark.parametrize(
    "value",
    [
        "x" * 4096,
        ["x" * 100] * 50,
        {"k" * 4096: 1},
        10**5000,
        b"bytes",
        bytearray(5000),
        (1, 2),
        {1: 2},
        {1, 2},
        float("nan"),
        float("inf"),
        "\ud800",
        Text("text"),
        OrderedDict(a=1),
        Decimal(1),
        datetime.now(timezone.utc),
        np.float64(1),
        np.arange(3),
        pd.DataFrame({"a": [1]}),
        pl.DataFrame({"a": [1]}),
        pa.table({"a": [1]}),
        [np.arange(3)],
        {"__classname__": "x"},
        {"entrepot": 1},
        {"deep": {"scope": 1, "session": 1, "id": 1, "generation": 1, "instance": 1}},
    ],
    ids=lambda value: type(value).__name__,
)
def test_everything_else_goes_by_reference(value: Any) -> None:
    assert not stays_inline(value)


def test_depth_is_bounded() -> None:
    deep: list[Any] = []
    for _ in range(10_000):
        deep = [deep]
    assert not stays_inline(deep)
    loop: list[Any] = []
    loop.append(loop)
    assert not stays_inline(loop)


def test_nothing_stays_below_zero_bytes() -> None:
    assert not stays_inline(None, 0)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner, max_size=5),
    max_leaves=20,
)


@given(json_values)
def test_what_stays_survives_json_and_is_small(value: Any) -> None:
    if stays_inline(value):
        text = json.dumps(value, ensure_ascii=False)
        assert json.loads(text) == value
        assert len(text.encode()) < 3 * 4096  # the estimate ignores escapes


@pytest.mark.parametrize(
    ("value", "name", "shape"),
    [
        (np.zeros((2, 3)), "numpy.ndarray", (2, 3)),
        (np.float32(1), "numpy.float32", ()),
        (pd.DataFrame({"a": [1, 2], "b": [3, 4]}), "pandas.DataFrame", (2, 2)),
        (pd.Series([1, 2, 3]), "pandas.Series", (3,)),
        (pl.DataFrame({"a": [1]}), "polars.DataFrame", (1, 1)),
        (pa.table({"a": [1, 2]}), "pyarrow.lib.Table", (2, 1)),
        (pa.array([1, 2]), "pyarrow.lib.Int64Array", (2,)),
        ({"a": 1}, "dict", None),
        (b"x", "bytes", None),
        (Text(), f"{Text.__module__}.Text", None),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_descriptions(value: Any, name: str, shape: tuple[int, ...] | None) -> None:
    # pyarrow.Table and pyarrow.lib.Table are the same class.
    assert type_name(value) in (name, name.replace(".lib.", "."))
    assert shape_of(value) == shape


def test_other_libraries_are_not_asked_for_a_shape() -> None:
    class Lazy:
        @property
        def shape(self) -> tuple[int, ...]:
            raise AssertionError("started a computation")

    assert shape_of(Lazy()) is None


def test_sizes_for_people() -> None:
    assert [human_bytes(n) for n in (0, 1023, 1024, 3 << 20, 5 << 30, 2 << 40)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "3.0 MiB",
        "5.0 GiB",
        "2.0 TiB",
    ]


@pytest.fixture
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ADDRESS", "SCOPE", "SESSION_TTL", "COPY", "INLINE_BELOW"):
        monkeypatch.delenv(f"ENTREPOT_{name}", raising=False)


@pytest.mark.usefixtures("_bare_environment")
def test_settings_order(monkeypatch: pytest.MonkeyPatch) -> None:
    configured = {"scope": "from file", "session_ttl": "2h", "copy": "always", "inline_below": "0"}.get
    assert resolve().copy == "never"
    assert resolve().inline_below == 4096
    assert resolve().scope is None
    policy = resolve(lookup_option=configured)
    assert (policy.scope, policy.session_ttl, policy.copy, policy.inline_below) == (
        "from file",
        7200,
        "always",
        0,
    )
    monkeypatch.setenv("ENTREPOT_SCOPE", "from env")
    monkeypatch.setenv("ENTREPOT_SESSION_TTL", "30m")
    assert resolve(lookup_option=configured).scope == "from env"
    assert resolve(lookup_option=configured).session_ttl == 1800
    assert resolve(scope="argument", session_ttl=60, lookup_option=configured).scope == "argument"
    assert resolve(session_ttl=60, lookup_option=configured).session_ttl == 60


@pytest.mark.usefixtures("_bare_environment")
@pytest.mark.parametrize(
    ("name", "value"), [("COPY", "sometimes"), ("SESSION_TTL", "later"), ("INLINE_BELOW", "-1"), ("INLINE_BELOW", "x")]
)
def test_bad_settings_are_named(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(f"ENTREPOT_{name}", value)
    with pytest.raises(InvalidArgument, match=value):
        resolve()
