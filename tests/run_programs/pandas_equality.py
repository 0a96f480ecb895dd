"""Exact equality of pandas objects, including what pandas' own assertions ignore."""

from __future__ import annotations

from typing import Any

import pandas as pd


def assert_same_index(back: pd.Index, value: pd.Index) -> None:
    pd.testing.assert_index_equal(back, value, exact=True)
    assert type(back) is type(value)
    assert repr(back.dtype) == repr(value.dtype)
    assert list(back.names) == list(value.names)
    assert getattr(back, "freq", None) == getattr(value, "freq", None)


def assert_same(back: Any, value: Any) -> None:
    """Exact equality, including what pandas' own assertions ignore."""
    assert type(back) is type(value)
    if isinstance(value, pd.Index):
        assert_same_index(back, value)
        return
    if not isinstance(value, (pd.Series, pd.DataFrame)):
        pd.testing.assert_extension_array_equal(back, value)
        assert repr(back.dtype) == repr(value.dtype)
        return
    assert_same_index(back.index, value.index)
    assert back.attrs == value.attrs
    assert back.flags.allows_duplicate_labels == value.flags.allows_duplicate_labels
    if isinstance(value, pd.Series):
        pd.testing.assert_series_equal(back, value, check_flags=True)
        assert repr(back.dtype) == repr(value.dtype)
        assert type(back.name) is type(value.name)
    else:
        pd.testing.assert_frame_equal(back, value, check_flags=True)
        assert_same_index(back.columns, value.columns)
        assert list(map(repr, back.dtypes)) == list(map(repr, value.dtypes))
