"""Search through all states of the keeper and daemon model for one in which something is wrong.

Invariants of each state, and of the states in which nothing more can happen:

- at most one process serves the store, counting stopped ones, which may continue;
- a daemon that begins to serve has every object that was ever sealed;
- no client waits for a keeper: nothing that a daemon does waits for a stopped keeper;
- a daemon that steps down for an upgrade accepts no client;
- no program runs of whose upgrade it was said that nothing changed;
- no process ends by itself while it is the only one that has the store;
- when nothing more can happen, and the two did not die at once, one daemon serves, and a complete keeper holds all that
  it has.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from keeper_model import Model
from keeper_model_states import ALIVE, Faults, Rules, State, first_state


def violated_invariant(state: State) -> str:
    """Describe the invariant that this state violates; empty if none."""
    if state.wrong:
        return state.wrong
    serving = [daemon for daemon in state.daemons if daemon.phase in ("serve", "down") and daemon.run in ALIVE]
    if len(serving) > 1:
        return "two processes serve the store"
    for daemon in serving:
        if daemon.waits and daemon.run == "run" and state.keepers[daemon.peer].run == "stop":
            return "clients wait for a keeper that is stopped"
    return ""


def violated_final_invariant(state: State) -> str:
    """Describe what is wrong in a state in which nothing more can happen; empty if nothing."""
    keepers = [keeper for keeper in state.keepers if keeper.run != "gone" and keeper.whole]
    daemons = [daemon for daemon in state.daemons if daemon.run != "gone"]
    if not keepers and not daemons:
        return ""  # both died at once
    if len(daemons) != 1 or daemons[0].phase != "serve" or daemons[0].pending or daemons[0].upgrade:
        return "nobody serves a store that lives"
    if len(keepers) != 1 or not state.sealed <= keepers[0].items:
        return "no keeper holds what the daemon has"
    return ""


@dataclass(frozen=True)
class SearchResult:
    """Result of a search.

    Attributes:
        states: number of states that were reached.
        ends: number of states in which nothing more can happen.
        problem: first problem found; empty if none.
        steps: the steps that lead to it, followed by the state.
    """

    states: int
    ends: int
    problem: str
    steps: tuple[str, ...]


def explore(rules: Rules, faults: Faults, only: str = "") -> SearchResult:
    """Visit all reachable states, breadth first, so that a problem is reported with as few steps as possible.

    Args:
        only: look for this problem, and continue past others.
    """
    model = Model(rules, faults)
    start = first_state(faults)
    predecessors: dict[State, tuple[State, str] | None] = {start: None}
    queue = deque([start])
    ends = 0
    while queue:
        state = queue.popleft()
        problem = violated_invariant(state)
        is_wrong = bool(problem)
        if not is_wrong:
            step_count = 0
            for name, next_state in model.steps(state):
                step_count += 1
                if next_state not in predecessors:
                    predecessors[next_state] = (state, name)
                    queue.append(next_state)
            if step_count == 0:
                ends += 1
                problem = violated_final_invariant(state)
        elif only and problem != only:
            # Steps after a violation count as well: one guard's failure may hide another's.
            for name, next_state in model.steps(state._replace(wrong="")):
                if next_state not in predecessors:
                    predecessors[next_state] = (state, name)
                    queue.append(next_state)
        if problem and (not only or problem == only):
            return SearchResult(len(predecessors), ends, problem, (*_path(predecessors, state), str(state)))
    return SearchResult(len(predecessors), ends, "", ())


def _path(predecessors: dict[State, tuple[State, str] | None], state: State) -> tuple[str, ...]:
    names = []
    while (predecessor := predecessors[state]) is not None:
        state, name = predecessor
        names.append(name)
    return tuple(reversed(names))
