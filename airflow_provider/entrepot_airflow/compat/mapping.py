"""Inputs that mapped tasks and task groups are expanded over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def expanded_references(operator: Any) -> Iterator[tuple[Any, str]]:
    """Yield the XComs that a mapped task is expanded over, as upstream operator and key."""
    yield from operator._get_specified_expand_input().iter_references()


def group_references(group: Any) -> Iterator[tuple[Any, str]]:
    """Yield the XComs that a mapped group of tasks is expanded over, as upstream operator and key."""
    yield from group._expand_input.iter_references()


def expanded_values(task: Any) -> Any:
    """Return what a mapped task of a serialized DAG is expanded over: a mapping of arguments, or one reference."""
    return task._get_specified_expand_input().value
