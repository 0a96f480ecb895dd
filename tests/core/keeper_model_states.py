"""States of the keeper and daemon model: processes, the channels between them, and what may still happen."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple


@dataclass(frozen=True)
class Rules:
    """Guards of the design. With one of them disabled, the search finds the failure that it prevents."""

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
    ends_a_late_start: bool = True  # a daemon that did not exec in time is killed before another one is started
    # Of an upgrade:
    steps_down_alone: bool = True  # after an upgrade's answer, no client is accepted
    exec_after_end: bool = True  # the keeper runs the new program only once its daemon is gone
    daemon_is_ended_by_keeper: bool = True  # the daemon lives until the keeper ends it, so one of them always lives
    unchanged_when_certain: bool = True  # "nothing was changed" is said once the keeper cannot run the program any more
    rolls_back: bool = True  # the keeper returns to the previous program if the new one's first daemon dies early
    rolls_back_again: bool = True  # a return that failed is tried again after the next early death
    retries_first_start: bool = True  # a new program that cannot start a daemon tries again, as at any other time


@dataclass(frozen=True)
class Faults:
    """Limits on the number of faults, and on the clients' actions."""

    stops: int = 1
    kills: int = 2
    cuts: int = 0  # of a channel between two living processes, which can then no longer communicate
    upgrades: int = 1
    objects: int = 2
    timeouts: int = 0  # a daemon's or keeper's waiting ends although its peer is only slow
    failures: int = 0  # of a fork or an exec
    bad_program: bool = False  # the daemons of every program that an upgrade brings exit before they serve
    processes: int = 7  # total per kind: with a guard disabled, they might start each other forever


class Left(NamedTuple):
    """What may still happen, of each kind in :class:`Faults`."""

    stops: int
    kills: int
    cuts: int
    upgrades: int
    objects: int
    timeouts: int
    failures: int

    @staticmethod
    def of(faults: Faults) -> Left:
        return Left(*(getattr(faults, field.name) for field in fields(faults) if field.name in Left._fields))


class Keeper(NamedTuple):
    run: str  # run, stop, dying (killed), gone
    phase: str  # half (before exec), watch, end, exec, back (rolling back), start, spawning (awaits a daemon's exec)
    peer: int  # daemon
    items: frozenset[int]
    whole: bool
    program: int = 0  # 0: the first one; n: brought by upgrade n
    successor: int = 0  # program to run when the daemon is gone; 0: none
    previous: int = -1  # program to roll back to; -1: none
    is_new: bool = False  # this program has not started a daemon yet


class Daemon(NamedTuple):
    run: str
    phase: str  # half (before exec), adopt, serve, down (an upgrade was answered)
    link: str  # linked, ending, starting, filling
    peer: int  # keeper
    items: frozenset[int]
    unsent: tuple[str, ...]
    pending: int  # object being put; 0: none
    waits: bool  # for the keeper's answer, or its exec
    program: int = 0
    upgrade: int = 0  # in progress; 0: none
    gave_up: bool = False  # on the upgrade, without having told the caller yet


class Channel(NamedTuple):
    to_keeper: tuple[str, ...] = ()
    acks: frozenset[int] = frozenset()  # answers to upgrades, on their way to the daemon
    cut: bool = False


class State(NamedTuple):
    keepers: tuple[Keeper, ...]
    daemons: tuple[Daemon, ...]
    channels: frozenset[tuple[tuple[int, int], Channel]]  # by (keeper, daemon)
    sealed: frozenset[int]
    left: Left
    unchanged: frozenset[int] = frozenset()  # upgrades whose callers were told that nothing changed
    wrong: str = ""  # violation caused by a step

    def channel(self, pair: tuple[int, int]) -> Channel:
        return dict(self.channels).get(pair, Channel(cut=True))

    def with_channel(self, pair: tuple[int, int], channel: Channel | None) -> State:
        channels = {(key, value) for key, value in self.channels if key != pair}
        if channel is not None:
            channels.add((pair, channel))
        return self._replace(channels=frozenset(channels))

    def with_process(self, number: int, process: Keeper | Daemon) -> State:
        """Replace a process. What one that is gone knew is forgotten, so that fewer states differ."""
        if isinstance(process, Keeper):
            if process.run == "gone":
                process = Keeper("gone", process.phase, process.peer, frozenset(), process.whole)
            return self._replace(keepers=(*self.keepers[:number], process, *self.keepers[number + 1 :]))
        if process.run == "gone":
            process = Daemon("gone", process.phase, "linked", process.peer, frozenset(), (), 0, False)
        return self._replace(daemons=(*self.daemons[:number], process, *self.daemons[number + 1 :]))

    def using(self, fault: str) -> State:
        return self._replace(left=self.left._replace(**{fault: getattr(self.left, fault) - 1}))

    def violating(self, problem: str) -> State:
        return self._replace(wrong=self.wrong or problem)


Step = tuple[str, State]
ALIVE = ("run", "stop")


def first_state(faults: Faults) -> State:
    """State of a newly started store: one keeper, and one daemon about to begin."""
    keeper = Keeper("run", "watch", 0, frozenset(), True)
    daemon = Daemon("run", "adopt", "linked", 0, frozenset(), (), 0, False)
    return State((keeper,), (daemon,), frozenset({((0, 0), Channel())}), frozenset(), Left.of(faults))
