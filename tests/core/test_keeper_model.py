"""The keeper and daemon model: every interleaving, with each guard disabled in turn as a control."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from keeper_model import Faults, Rules, explore

NONE = Faults(stops=0, kills=0, cuts=0, upgrades=0, objects=1)
TWO_SERVE = "two processes serve the store"
LOST = "a sealed object is lost"
STALL = "clients wait for a keeper that is stopped"


@pytest.mark.parametrize(
    "faults",
    [
        pytest.param(Faults(), id="stopped, killed twice, upgraded"),
        pytest.param(Faults(stops=0, kills=1, cuts=1, upgrades=0), id="cut off and killed"),
        pytest.param(Faults(stops=2, kills=1, cuts=0, upgrades=0), id="stopped twice and killed"),
        pytest.param(Faults(stops=1, kills=0, cuts=1, upgrades=1, objects=1), id="cut off, stopped and upgraded"),
    ],
)
def test_nothing_breaks_in_any_interleaving(faults: Faults) -> None:
    found = explore(Rules(), faults)
    assert not found.problem, "\n".join((found.problem, *found.steps))
    assert found.states > 1000, "hardly anything was tried"
    assert found.ends > 0, "nothing came to an end"


@pytest.mark.parametrize(
    ("guard", "faults", "problem"),
    [
        ("silence_is_not_death", NONE, LOST),
        ("keeper_ends_daemon", replace(NONE, cuts=1, kills=1), LOST),
        ("daemon_ends_keeper", replace(NONE, cuts=1), LOST),
        ("reads_to_the_end", replace(NONE, kills=1), LOST),
        ("safe_before_published", replace(NONE, kills=1), LOST),
        ("whole_before_heir", replace(NONE, kills=2), LOST),
        ("all_before_whole", replace(NONE, kills=2), LOST),
        ("holding_does_not_wait", replace(NONE, stops=1), STALL),
        ("exec_is_not_waited_for", replace(NONE, stops=1, kills=1), STALL),
        ("steps_down_alone", replace(NONE, upgrades=1), "a client is cut off by an upgrade"),
    ],
)
def test_each_guard_is_missed(guard: str, faults: Faults, problem: str) -> None:
    assert not explore(Rules(), faults).problem, "these faults alone break it"
    found = explore(replace(Rules(), **{guard: False}), faults, only=problem)
    assert found.problem == problem, f"without {guard}: {found}"


@pytest.mark.parametrize("guard", ["silence_is_not_death", "keeper_ends_daemon", "daemon_ends_keeper"])
def test_the_lock_stands_behind_the_others(guard: str) -> None:
    """Without one of the guards, two daemons can start; then only the lock keeps the second one from serving."""
    faults = replace(NONE, cuts=0 if guard == "silence_is_not_death" else 1, processes=3)
    without = replace(Rules(), **{guard: False})
    assert explore(replace(without, one_lock=False), faults, only=TWO_SERVE).problem == TWO_SERVE
    assert not explore(without, faults, only=TWO_SERVE).problem
