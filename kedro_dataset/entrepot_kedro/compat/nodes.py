"""Another function in place of a node's ``run``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kedro.pipeline.node import Node


def replace_run(node: Node, run: Callable[..., dict[str, Any]]) -> None:
    """Have the runner call another function instead of ``node.run``; other nodes are not affected."""
    node.__dict__["run"] = run


def restore_run(node: Node) -> None:
    """Undo :func:`replace_run`, if it was done."""
    node.__dict__.pop("run", None)
