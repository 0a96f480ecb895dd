"""Stored values whose metadata a test changes."""

from __future__ import annotations

from typing import Any

import pytest
from entrepot.codec import Node, pack_tree, unpack_tree
from entrepot.errors import CorruptData


def tree_of(put: Any, value: Any) -> tuple[Any, Node]:
    stored = put(value)
    return stored, unpack_tree(stored.tree)


def expect_corrupt(stored: Any, root: Node, match: str) -> None:
    stored.tree = pack_tree(root)
    with pytest.raises(CorruptData, match=match):
        stored.get()
