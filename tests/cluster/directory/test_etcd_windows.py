"""The windows of a listing in etcd cover every key once, in few steps, whatever the keys are."""

from __future__ import annotations

import bisect
import random

import pytest
from entrepot_cluster.directory.backends.etcd_windows import Windows
from hypothesis import given
from hypothesis import strategies as st


def _listed(keys: list[bytes], prefix: bytes, after: bytes, wanted: int) -> tuple[list[bytes], int, int]:
    """What the windows cover, in how many steps, and the most keys in one of them."""
    seen: list[bytes] = []
    steps = most = 0
    windows = Windows(prefix, after)
    while not windows.exhausted:
        part = keys[bisect.bisect_left(keys, windows.begin) : bisect.bisect_left(keys, windows.end)]
        seen += part
        steps, most = steps + 1, max(most, len(part))
        windows.advance(len(part), wanted)
    return seen, steps, most


@given(
    st.lists(st.binary(max_size=20), unique=True),
    st.binary(min_size=1, max_size=9).filter(lambda prefix: prefix.strip(b"\xff") != b""),
    st.integers(0, 30),
    st.integers(1, 1000),
)
def test_every_key_after_the_last_one_is_covered_once(
    tails: list[bytes], prefix: bytes, index: int, wanted: int
) -> None:
    keys = sorted(prefix + tail for tail in tails)
    after = keys[index] if index < len(keys) else b""
    expected = [key for key in keys if key > after]
    seen, steps, _ = _listed(sorted({*keys, b"", b"\xff" * 10}), prefix, after, wanted)
    assert [key for key in seen if key.startswith(prefix)] == expected
    assert len(seen) == len(set(seen))
    assert steps < 200 + 20 * len(keys)


@pytest.mark.parametrize("count", [0, 10, 1000, 100_000])
def test_windows_over_evenly_spread_keys_are_neither_many_nor_wide(count: int) -> None:
    generator = random.Random(1)
    keys = sorted(b"p" + generator.randbytes(24) for _ in range(count))
    seen, steps, most = _listed(keys, b"p", b"", 1000)
    assert seen == keys
    assert steps <= 10 + 2 * count / 1000
    assert most <= 2000
