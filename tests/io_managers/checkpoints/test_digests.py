"""Chunk names, with and without the package that computes the fast digests."""

from __future__ import annotations

from pathlib import Path

import entrepot
import numpy as np
import pytest
from entrepot_checkpoints.manifests import digests
from entrepot_checkpoints.retention import verify

MIB = 1 << 20


@pytest.fixture
def without_blake3(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate that only the base package is installed."""
    monkeypatch.setattr(digests, "_hasher", False)


def names(root: Path) -> list[str]:
    return sorted(path.name for path in (root / ".entrepot/chunks").rglob("*") if path.is_file())


def test_known_digests() -> None:
    # BLAKE3's digest of empty input, from its specification.
    empty = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
    assert digests.digest_of(b"") == f"b3-{empty}"
    assert digests.matches(b"", f"b3-{empty}")
    assert not digests.matches(b"x", f"b3-{empty}")
    assert digests.folder_of(f"b3-{empty}") == "af"


def test_both_kinds_lie_beside_each_other(
    store: entrepot.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = store.put(np.arange(MIB)), store.put(np.arange(MIB) * 3)
    with monkeypatch.context() as patched:
        patched.setattr(digests, "_hasher", False)
        store.save(first, str(tmp_path / "a"))
        assert all(len(name) == 64 for name in names(tmp_path))
    store.save([first, second], str(tmp_path / "b"))
    kinds = {name.startswith(digests.BLAKE3_PREFIX) for name in names(tmp_path)}
    assert kinds == {True, False}
    for name in ("a", "b"):
        assert verify(str(tmp_path / name)).ok
    store.delete(first)
    store.delete(second)
    store.load(str(tmp_path / "a"))
    store.load(str(tmp_path / "b"))
    assert np.array_equal(store.get(first), np.arange(MIB))
    assert np.array_equal(store.get(second), np.arange(MIB) * 3)


def test_loading_needs_no_blake3_and_verifying_says_what_to_install(
    store: entrepot.Store, tmp_path: Path, without_blake3: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    oid = store.put(np.arange(MIB))
    with monkeypatch.context() as patched:
        patched.setattr(digests, "_hasher", None)  # detect blake3 again
        store.save(oid, str(tmp_path / "a"))
    assert all(name.startswith(digests.BLAKE3_PREFIX) for name in names(tmp_path))
    store.load(str(tmp_path / "a"))  # existing objects are compared byte by byte
    store.delete(oid)
    store.load(str(tmp_path / "a"))
    assert np.array_equal(store.get(oid), np.arange(MIB))
    with pytest.raises(entrepot.UnsupportedType, match=r"entrepot\[checkpoints\]"):
        verify(str(tmp_path / "a"))
