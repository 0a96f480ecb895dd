"""Small version of the placement benchmark: data is local, and no pod stays pending that would otherwise be placed."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.commands.cluster import GOAL_LOCAL, measure
from benchmarks.commands.cluster_cases import make_case


@pytest.mark.parametrize("name", ["several nodes", "contradictions"])
def test_a_case(entrepot_cluster: Any, name: str) -> None:
    figures = measure(entrepot_cluster, make_case(name, 4, 60, 3))
    assert figures.pending <= figures.default_pending
    if name == "several nodes":
        assert figures.pending == 0
        assert figures.local >= GOAL_LOCAL * figures.possible
        assert figures.default_local < 0.6 * figures.possible  # otherwise the case would prove nothing
