"""The keeper and daemon model: every interleaving, with each guard disabled in turn as a control."""

from __future__ import annotations

import sys
from dataclasses import fields, replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from keeper_model_search import explore
from keeper_model_states import Faults, Rules

NO_FAULTS = Faults(stops=0, kills=0, cuts=0, upgrades=0, objects=1)
UPGRADE = replace(NO_FAULTS, upgrades=1)
BAD_UPGRADE = replace(UPGRADE, bad_program=True)
TWO_SERVE = "two processes serve the store"
LOST = "a sealed object is lost"
STALL = "clients wait for a keeper that is stopped"
CUT_OFF = "a client is cut off by an upgrade"
NOT_UNCHANGED = "an upgrade takes place that was said not to"
LEAVES = "the last process of a store ends by itself"
NOBODY = "nobody serves a store that lives"

BOUNDS = {
    "stopped, killed twice, upgraded": Faults(),
    "cut off and killed": Faults(stops=0, kills=1, cuts=1, upgrades=0),
    "stopped twice and killed": Faults(stops=2, kills=1, upgrades=0),
    "cut off, stopped and upgraded": Faults(kills=0, cuts=1, objects=1),
    "an upgrade too slow for somebody": Faults(kills=1, timeouts=1),
    "two upgrades, given up or not": Faults(stops=0, kills=1, upgrades=2, timeouts=1, objects=1),
    "an upgrade for which something fails": Faults(kills=1, timeouts=1, failures=1, objects=1),
    "an upgrade to a bad program": Faults(kills=1, failures=1, objects=1, bad_program=True),
    "a bad program, killed twice": Faults(stops=0, kills=2, objects=1, bad_program=True),
    "cut off, too slow, upgraded": Faults(stops=0, kills=0, cuts=1, timeouts=1, objects=1),
}
LARGE_BOUNDS = {
    "stopped, killed twice, slow, a bad program": Faults(timeouts=1, failures=1, bad_program=True),
    "cut off, stopped, killed, slow, upgraded": Faults(kills=1, cuts=1, timeouts=1, objects=1),
    "stopped and killed twice, upgraded twice": Faults(stops=2, upgrades=2, objects=1),
    "slow and failing twice": Faults(timeouts=2, failures=2, objects=1),
}

# Faults without which a disabled guard would do no harm, and the harm.
CONTROLS = {
    "silence_is_not_death": (NO_FAULTS, LOST),
    "keeper_ends_daemon": (replace(NO_FAULTS, cuts=1, kills=1), LOST),
    "daemon_ends_keeper": (replace(NO_FAULTS, cuts=1), LOST),
    "reads_to_the_end": (replace(NO_FAULTS, kills=1), LOST),
    "safe_before_published": (replace(NO_FAULTS, kills=1), LOST),
    "whole_before_heir": (replace(NO_FAULTS, kills=2), LOST),
    "all_before_whole": (replace(NO_FAULTS, kills=2), LOST),
    "holding_does_not_wait": (replace(NO_FAULTS, stops=1), STALL),
    "exec_is_not_waited_for": (replace(NO_FAULTS, stops=1, kills=1), STALL),
    "steps_down_alone": (UPGRADE, CUT_OFF),
    "exec_after_end": (UPGRADE, NOBODY),
    "daemon_is_ended_by_keeper": (replace(UPGRADE, kills=1), LEAVES),
    "unchanged_when_certain": (replace(UPGRADE, timeouts=1, kills=1), NOT_UNCHANGED),
    "rolls_back": (BAD_UPGRADE, NOBODY),
    "rolls_back_again": (replace(BAD_UPGRADE, failures=1), NOBODY),
    "retries_first_start": (replace(UPGRADE, failures=2), LEAVES),
}
# With one of these disabled, a second daemon starts; only the lock keeps it from serving.
BEFORE_THE_LOCK = {
    "silence_is_not_death": NO_FAULTS,
    "keeper_ends_daemon": replace(NO_FAULTS, cuts=1),
    "daemon_ends_keeper": replace(NO_FAULTS, cuts=1),
    "ends_a_late_start": replace(NO_FAULTS, kills=1, timeouts=1),
    "exec_after_end": UPGRADE,
}


def assert_nothing_breaks(faults: Faults) -> None:
    result = explore(Rules(), faults)
    assert not result.problem, "\n".join((result.problem, *result.steps))
    assert result.states > 1000, "hardly anything was tried"
    assert result.ends > 0, "nothing came to an end"


@pytest.mark.parametrize("bounds", BOUNDS)
def test_nothing_breaks_in_any_interleaving(bounds: str) -> None:
    assert_nothing_breaks(BOUNDS[bounds])


@pytest.mark.exhaustive
@pytest.mark.parametrize("bounds", LARGE_BOUNDS)
def test_nothing_breaks_within_large_bounds(bounds: str) -> None:
    assert_nothing_breaks(LARGE_BOUNDS[bounds])


@pytest.mark.parametrize("guard", CONTROLS)
def test_each_guard_is_missed(guard: str) -> None:
    faults, problem = CONTROLS[guard]
    assert not explore(Rules(), faults).problem, "these faults alone break it"
    result = explore(replace(Rules(), **{guard: False}), faults, only=problem)
    assert result.problem == problem, f"without {guard}: {result}"


@pytest.mark.parametrize("guard", BEFORE_THE_LOCK)
def test_the_lock_stands_behind_the_others(guard: str) -> None:
    faults = replace(BEFORE_THE_LOCK[guard], processes=3)
    rules = replace(Rules(), **{guard: False})
    assert explore(replace(rules, one_lock=False), faults, only=TWO_SERVE).problem == TWO_SERVE
    assert not explore(rules, faults, only=TWO_SERVE).problem


def test_every_guard_has_a_control() -> None:
    assert {field.name for field in fields(Rules)} == CONTROLS.keys() | BEFORE_THE_LOCK.keys() | {"one_lock"}
