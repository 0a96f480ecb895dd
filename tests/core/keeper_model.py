"""Model of keeper and daemon: every interleaving of their actions, including being stopped, slow, killed and cut off.

Keepers, daemons and the channels between them are values. A step is one thing that one of them does without waiting, or
that happens to it. From every reachable state, everything that can happen is tried, up to a number of faults. Slowness
is not a step: a process that does nothing while others proceed is slow. A process that was sent SIGKILL runs no more
code, but what it holds (its lock, its ends of channels) is released in a separate step, some time later.

Invariants of each state, and of the states in which nothing more can happen:

- at most one process serves the store, counting stopped ones, which may continue;
- a daemon that begins to serve has every object that was ever sealed;
- no client waits for a keeper: nothing that a daemon does waits for a stopped keeper;
- a daemon that steps down for an upgrade accepts no client;
- when nothing more can happen, and the two did not die at once, one daemon serves, and a complete keeper holds all that
  it has.

Each field of ``Rules`` is a guard. With one of them disabled, :func:`explore` finds the failure that it prevents.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

CHANNEL_CAPACITY = 1  # messages that fit in a keeper's socket


@dataclass(frozen=True)
class Rules:
    """Guards of the design."""

    silence_is_not_death: bool = True  # the daemon does not replace a keeper for not answering in time
    keeper_ends_daemon: bool = True  # a daemon whose channel closed is killed and gone before another one is started
    daemon_ends_keeper: bool = True  # likewise for a keeper
    one_lock: bool = True  # the serving process has the store's lock, which is free once the process is gone
    reads_to_the_end: bool = True  # the keeper reads all that its daemon sent before it starts another one
    safe_before_published: bool = True  # an object is sealed only once its memory was sent to the keeper
    whole_before_heir: bool = True  # a keeper that was not given everything starts no daemon
    all_before_whole: bool = True  # the "that was all" message follows what arrived meanwhile
    holding_does_not_wait: bool = True  # the daemon does not wait for the keeper's answer
    exec_is_not_waited_for: bool = True  # nor for the exec of a keeper that it starts
    steps_down_alone: bool = True  # after an upgrade's answer, no client is accepted


@dataclass(frozen=True)
class Faults:
    """Limits on the number of faults, and on the clients' actions."""

    stops: int = 1
    kills: int = 2
    cuts: int = 0  # of a channel between two living processes, which can then no longer communicate
    upgrades: int = 1
    objects: int = 2
    processes: int = 7  # total per kind: with a guard disabled, they might start each other forever


class Keeper(NamedTuple):
    run: str  # run, stop, dying (killed), gone
    phase: str  # half (before exec), watch, end, start
    peer: int  # daemon
    items: frozenset[int]
    whole: bool


class Daemon(NamedTuple):
    run: str
    phase: str  # adopt, serve, down (an upgrade was answered)
    link: str  # linked, ending, starting, filling
    peer: int  # keeper
    items: frozenset[int]
    unsent: tuple[str, ...]
    pending: int  # object being put; 0: none
    waits: bool  # for the keeper's answer, or its exec


class Channel(NamedTuple):
    to_keeper: tuple[str, ...]
    acked: bool  # the answer to Upgrade is on its way to the daemon
    cut: bool


class State(NamedTuple):
    keepers: tuple[Keeper, ...]
    daemons: tuple[Daemon, ...]
    channels: frozenset[tuple[tuple[int, int], Channel]]  # by (keeper, daemon)
    sealed: frozenset[int]
    left: tuple[int, int, int, int, int]  # stops, kills, cuts, upgrades, objects
    wrong: str  # violation caused by a step


Step = tuple[str, State]
ALIVE = ("run", "stop")


def first_state(faults: Faults) -> State:
    """State of a newly started store: one keeper, and one daemon about to begin."""
    keeper = Keeper("run", "watch", 0, frozenset(), True)
    daemon = Daemon("run", "adopt", "linked", 0, frozenset(), (), 0, False)
    left = (faults.stops, faults.kills, faults.cuts, faults.upgrades, faults.objects)
    return State((keeper,), (daemon,), frozenset({((0, 0), Channel((), False, False))}), frozenset(), left, "")


class Model:
    """Steps from a state, under given rules."""

    def __init__(self, rules: Rules, processes: int) -> None:
        self.rules = rules
        self.processes = processes

    def steps(self, state: State) -> Iterator[Step]:
        """Yield every possible next step: its name and the new state."""
        for number, keeper in enumerate(state.keepers):
            yield from self._process_steps(state, "keeper", number, keeper)
            if keeper.run == "run":
                yield from self._keeper(state, number, keeper)
        for number, daemon in enumerate(state.daemons):
            yield from self._process_steps(state, "daemon", number, daemon)
            if daemon.run == "run":
                yield from self._daemon(state, number, daemon)
        if state.left[2] > 0:
            for pair, channel in state.channels:
                if not channel.cut and state.keepers[pair[0]].run in ALIVE and state.daemons[pair[1]].run in ALIVE:
                    yield "cut", _use_fault(_with_channel(state, pair, channel._replace(cut=True)), 2)

    def _process_steps(self, state: State, kind: str, number: int, process: Keeper | Daemon) -> Iterator[Step]:
        name = f"{kind} {number}"
        if process.run == "run" and state.left[0] > 0:
            yield f"{name} is stopped", _use_fault(_replace_process(state, number, process._replace(run="stop")), 0)
        if process.run == "stop":
            yield f"{name} goes on", _replace_process(state, number, process._replace(run="run"))
        if process.run in ALIVE and state.left[1] > 0:
            yield f"{name} is killed", _use_fault(_replace_process(state, number, process._replace(run="dying")), 1)
        if process.run == "dying":
            yield f"{name} is gone", _replace_process(state, number, process._replace(run="gone"))

    # ---- keeper ----

    def _keeper(self, state: State, number: int, keeper: Keeper) -> Iterator[Step]:
        name = f"keeper {number}"
        pair = (number, keeper.peer)
        channel = _channel(state, pair)
        daemon = state.daemons[keeper.peer]
        if keeper.phase == "half":
            yield f"{name} runs its program", _replace_process(state, number, keeper._replace(phase="watch"))
        elif keeper.phase == "watch":
            if channel.to_keeper and not channel.cut:
                updated_keeper = _receive(keeper, channel.to_keeper[0])
                remaining_channel = channel._replace(
                    to_keeper=channel.to_keeper[1:], acked=channel.acked or channel.to_keeper[0] == "upgrade"
                )
                yield (
                    f"{name} takes a message",
                    _replace_process(_with_channel(state, pair, remaining_channel), number, updated_keeper),
                )
            if daemon.run == "gone" or channel.cut or daemon.peer != number:
                yield f"{name} sees its daemon's end", _replace_process(state, number, keeper._replace(phase="end"))
        elif keeper.phase == "end":
            yield from self._end_daemon(state, number, keeper)
        elif keeper.phase == "start" and len(state.daemons) < self.processes:
            successor = Daemon("run", "adopt", "linked", number, keeper.items, (), 0, False)
            watching_keeper = keeper._replace(phase="watch", peer=len(state.daemons))
            grown_state = state._replace(daemons=(*state.daemons, successor))
            yield (
                f"{name} starts a daemon",
                _replace_process(
                    _with_channel(grown_state, (number, len(state.daemons)), Channel((), False, False)),
                    number,
                    watching_keeper,
                ),
            )

    def _end_daemon(self, state: State, number: int, keeper: Keeper) -> Iterator[Step]:
        daemon = state.daemons[keeper.peer]
        if self.rules.keeper_ends_daemon and daemon.run in ALIVE:
            yield (
                f"keeper {number} kills its daemon",
                _replace_process(state, keeper.peer, daemon._replace(run="dying")),
            )
            return
        if self.rules.keeper_ends_daemon and daemon.run != "gone":
            return
        if self.rules.reads_to_the_end:
            for message in _channel(state, (number, keeper.peer)).to_keeper:
                keeper = _receive(keeper, message)
        state = _with_channel(state, (number, keeper.peer), None)
        if self.rules.whole_before_heir and not keeper.whole:
            yield f"keeper {number} ends without an heir", _replace_process(state, number, keeper._replace(run="gone"))
        else:
            yield f"keeper {number} goes on alone", _replace_process(state, number, keeper._replace(phase="start"))

    # ---- daemon ----

    def _daemon(self, state: State, number: int, daemon: Daemon) -> Iterator[Step]:
        name = f"daemon {number}"
        if daemon.phase == "adopt":
            other_daemons = [other for index, other in enumerate(state.daemons) if index != number]
            if not self.rules.one_lock or all(
                other_daemon.phase == "adopt" or other_daemon.run == "gone" for other_daemon in other_daemons
            ):
                violation = "" if state.sealed <= daemon.items else "a sealed object is lost"
                serving_state = _replace_process(state, number, daemon._replace(phase="serve"))
                yield f"{name} serves", serving_state._replace(wrong=serving_state.wrong or violation)
            return
        if daemon.phase == "down":
            if not self.rules.steps_down_alone:
                yield f"{name} accepts a client", state._replace(wrong="a client is cut off by an upgrade")
            yield f"{name} ends for the upgrade", _replace_process(state, number, daemon._replace(run="gone"))
            return
        yield from self._link(state, number, daemon)
        if not daemon.waits:
            yield from self._clients(state, number, daemon)

    def _clients(self, state: State, number: int, daemon: Daemon) -> Iterator[Step]:
        name = f"daemon {number}"
        queued = daemon.link in ("linked", "filling", "ending")
        if daemon.pending == 0 and state.left[4] > 0:
            item = 1 + len(state.sealed | frozenset().union(*(other.items for other in state.daemons)))
            putting = daemon._replace(items=daemon.items | {item}, pending=item)
            if queued:
                putting = putting._replace(unsent=(*putting.unsent, str(item)))
                if not self.rules.holding_does_not_wait:
                    putting = putting._replace(waits=True)
            yield f"{name} gives memory for object {item}", _use_fault(_replace_process(state, number, putting), 4)
        if daemon.pending and (self._safe(daemon) or not self.rules.safe_before_published):
            sealed_state = state._replace(sealed=state.sealed | {daemon.pending})
            yield (
                f"{name} seals object {daemon.pending}",
                _replace_process(sealed_state, number, daemon._replace(pending=0)),
            )
        if state.left[3] > 0 and daemon.link == "linked":
            upgrading = daemon._replace(unsent=(*daemon.unsent, "upgrade"))
            yield f"{name} is asked for an upgrade", _use_fault(_replace_process(state, number, upgrading), 3)

    @staticmethod
    def _safe(daemon: Daemon) -> bool:
        return daemon.link in ("starting", "filling") or str(daemon.pending) not in daemon.unsent

    def _link(self, state: State, number: int, daemon: Daemon) -> Iterator[Step]:
        name = f"daemon {number}"
        keeper = state.keepers[daemon.peer]
        pair = (daemon.peer, number)
        channel = _channel(state, pair)
        if daemon.link == "ending":
            if keeper.run in ALIVE:
                yield f"{name} kills its keeper", _replace_process(state, daemon.peer, keeper._replace(run="dying"))
            elif keeper.run == "gone":
                yield from self._start_keeper(state, number, daemon)
            return
        if keeper.run == "gone" or (channel.cut and not self.rules.daemon_ends_keeper):
            yield from self._start_keeper(state, number, daemon)
            return
        if channel.cut:
            yield (
                f"{name} loses its keeper",
                _replace_process(state, number, daemon._replace(link="ending", waits=False)),
            )
            return
        if daemon.link == "linked" and not self.rules.silence_is_not_death and (daemon.unsent or channel.to_keeper):
            yield from self._start_keeper(state, number, daemon)
        if daemon.link == "linked" and channel.acked:
            yield f"{name} steps down", _replace_process(state, number, daemon._replace(phase="down"))
        if daemon.link == "starting":
            if keeper.phase != "half":
                yield f"{name} fills its keeper", _replace_process(state, number, self._filling(daemon))
            return
        if daemon.waits and not daemon.unsent and not channel.to_keeper:
            yield f"{name} has its answer", _replace_process(state, number, daemon._replace(waits=False))
        if daemon.unsent and len(channel.to_keeper) < CHANNEL_CAPACITY:
            new_channel = channel._replace(to_keeper=(*channel.to_keeper, daemon.unsent[0]))
            new_daemon = daemon._replace(unsent=daemon.unsent[1:])
            yield f"{name} sends", _replace_process(_with_channel(state, pair, new_channel), number, new_daemon)
        if daemon.link == "filling" and not daemon.unsent:
            linked_daemon = daemon._replace(link="linked", unsent=("all",) if self.rules.all_before_whole else ())
            yield f"{name} has filled its keeper", _replace_process(state, number, linked_daemon)

    def _filling(self, daemon: Daemon) -> Daemon:
        messages = tuple(str(item) for item in sorted(daemon.items))
        if not self.rules.all_before_whole:
            messages += ("all",)
        return daemon._replace(link="filling", unsent=messages, waits=False)

    def _start_keeper(self, state: State, number: int, daemon: Daemon) -> Iterator[Step]:
        if len(state.keepers) >= self.processes:
            return
        new_keeper = len(state.keepers)
        state = state._replace(keepers=(*state.keepers, Keeper("run", "half", number, frozenset(), False)))
        if state.keepers[daemon.peer].run == "gone":
            state = _with_channel(state, (daemon.peer, number), None)
        waits = not self.rules.exec_is_not_waited_for
        new_daemon = daemon._replace(link="starting", peer=new_keeper, unsent=(), waits=waits)
        state = _with_channel(state, (new_keeper, number), Channel((), False, False))
        yield f"daemon {number} starts keeper {new_keeper}", _replace_process(state, number, new_daemon)


def violated_invariant(state: State) -> str:
    """Describe the invariant that this state violates; empty if none."""
    if state.wrong:
        return state.wrong
    serving = [daemon for daemon in state.daemons if daemon.phase != "adopt" and daemon.run in ALIVE]
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
    if len(daemons) != 1 or daemons[0].phase != "serve" or daemons[0].pending:
        return f"nobody serves a store that lives: {daemons}"
    if len(keepers) != 1 or not state.sealed <= keepers[0].items:
        return f"no keeper holds what the daemon has: {keepers}"
    return ""


@dataclass(frozen=True)
class ExplorationResult:
    """Result of an exploration."""

    states: int
    ends: int
    problem: str  # first problem found; empty if none
    steps: tuple[str, ...]  # that lead to it


def explore(rules: Rules, faults: Faults, only: str = "") -> ExplorationResult:
    """Visit all reachable states, breadth first, so that a problem is reported with as few steps as possible.

    Args:
        only: look for this problem, and continue past others.
    """
    model = Model(rules, faults.processes)
    start = first_state(faults)
    predecessors: dict[State, tuple[State, str] | None] = {start: None}
    queue = deque([start])
    ends = 0
    while queue:
        state = queue.popleft()
        problem = violated_invariant(state)
        if only and problem != only:
            problem = ""
        step_count = 0
        if not problem:
            for name, next_state in model.steps(state):
                step_count += 1
                if next_state not in predecessors:
                    predecessors[next_state] = (state, name)
                    queue.append(next_state)
            if step_count == 0:
                ends += 1
                problem = "" if only else violated_final_invariant(state)
        if problem:
            return ExplorationResult(len(predecessors), ends, problem, _path(predecessors, state))
    return ExplorationResult(len(predecessors), ends, "", ())


def _path(predecessors: dict[State, tuple[State, str] | None], state: State) -> tuple[str, ...]:
    names = []
    while (predecessor := predecessors[state]) is not None:
        state, name = predecessor
        names.append(name)
    return tuple(reversed(names))


def _receive(keeper: Keeper, message: str) -> Keeper:
    if message == "all":
        return keeper._replace(whole=True)
    if message == "upgrade":
        return keeper
    return keeper._replace(items=keeper.items | {int(message)})


def _channel(state: State, pair: tuple[int, int]) -> Channel:
    return dict(state.channels).get(pair, Channel((), False, True))


def _with_channel(state: State, pair: tuple[int, int], channel: Channel | None) -> State:
    channels = {(key, value) for key, value in state.channels if key != pair}
    if channel is not None:
        channels.add((pair, channel))
    return state._replace(channels=frozenset(channels))


def _replace_process(state: State, number: int, process: Keeper | Daemon) -> State:
    if isinstance(process, Keeper):
        return state._replace(keepers=(*state.keepers[:number], process, *state.keepers[number + 1 :]))
    return state._replace(daemons=(*state.daemons[:number], process, *state.daemons[number + 1 :]))


def _use_fault(state: State, fault: int) -> State:
    remaining = list(state.left)
    remaining[fault] -= 1
    return state._replace(left=(remaining[0], remaining[1], remaining[2], remaining[3], remaining[4]))
