"""The keeper and daemon model: every interleaving, with each guard disabled in turn as a control."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from keeper_model import Faults, Rules, explore

NO_FAULTS = Faults(stops=0, kills=0, cuts=0, upgrades=0, objects=1)
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
    result = explore(Rules(), faults)
    assert not result.problem, "\n".join((result.problem, *result.steps))
    assert result.states > 1000, "hardly anything was tried"
    assert result.ends > 0, "nothing came to an end"


@pytest.mark.parametrize(
    ("guard", "faults", "problem"),
    [
        ("silence_is_not_death", NO_FAULTS, LOST),
        ("keeper_ends_daemon", replace(NO_FAULTS, cuts=1, kills=1), LOST),
        ("daemon_ends_keeper", replace(NO_FAULTS, cuts=1), LOST),
        ("reads_to_the_end", replace(NO_FAULTS, kills=1), LOST),
        ("safe_before_published", replace(NO_FAULTS, kills=1), LOST),
        ("whole_before_heir", replace(NO_FAULTS, kills=2), LOST),
        ("all_before_whole", replace(NO_FAULTS, kills=2), LOST),
        ("holding_does_not_wait", replace(NO_FAULTS, stops=1), STALL),
        ("exec_is_not_waited_for", replace(NO_FAULTS, stops=1, kills=1), STALL),
        ("steps_down_alone", replace(NO_FAULTS, upgrades=1), "a client is cut off by an upgrade"),
    ],
)
def test_each_guard_is_missed(guard: str, faults: Faults, problem: str) -> None:
    assert not explore(Rules(), faults).problem, "these faults alone break it"
    result = explore(replace(Rules(), **{guard: False}), faults, only=problem)
    assert result.problem == problem, f"without {guard}: {result}"


@pytest.mark.parametrize("guard", ["silence_is_not_death", "keeper_ends_daemon", "daemon_ends_keeper"])
def test_the_lock_stands_behind_the_others(guard: str) -> None:
    """Without one of the guards, two daemons can start; then only the lock keeps the second one from serving."""
    faults = replace(NO_FAULTS, cuts=0 if guard == "silence_is_not_death" else 1, processes=3)
    rules = replace(Rules(), **{guard: False})
    assert explore(replace(rules, one_lock=False), faults, only=TWO_SERVE).problem == TWO_SERVE
    assert not explore(rules, faults, only=TWO_SERVE).problem
