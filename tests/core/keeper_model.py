"""Model of keeper and daemon: every interleaving of their actions, including being stopped, slow, killed and cut off.

Keepers, daemons and the channels between them are values. A step is one thing that one of them does without waiting, or
that happens to it. From every reachable state, everything that can happen is tried, up to a number of faults. Slowness
is not a step: a process that does nothing while others proceed is slow; that somebody's waiting ends is a step. A
process that was sent SIGKILL runs no more code, but what it holds (its lock, its ends of channels) is released in a
separate step, some time later.

An upgrade is modelled whole: its request, the keeper's answer, the time-out that cancels it, the new program in the
keeper's process, and the return to the previous one. See :mod:`keeper_model_search` for what must hold.
"""

from __future__ import annotations

from collections.abc import Iterator

from keeper_model_states import ALIVE, Channel, Daemon, Faults, Keeper, Rules, State, Step

CHANNEL_CAPACITY = 1  # messages that fit in a keeper's socket


class Model:
    """Steps from a state, under given rules."""

    def __init__(self, rules: Rules, faults: Faults) -> None:
        self.rules = rules
        self.processes = faults.processes
        self.bad_program = faults.bad_program

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
        if state.left.cuts > 0:
            for pair, channel in state.channels:
                if not channel.cut and state.keepers[pair[0]].run in ALIVE and state.daemons[pair[1]].run in ALIVE:
                    yield "cut", state.with_channel(pair, channel._replace(cut=True)).using("cuts")

    def _process_steps(self, state: State, kind: str, number: int, process: Keeper | Daemon) -> Iterator[Step]:
        name = f"{kind} {number}"
        if process.run == "run" and state.left.stops > 0:
            yield f"{name} is stopped", state.with_process(number, process._replace(run="stop")).using("stops")
        if process.run == "stop":
            yield f"{name} goes on", state.with_process(number, process._replace(run="run"))
        if process.run in ALIVE and state.left.kills > 0:
            yield f"{name} is killed", state.with_process(number, process._replace(run="dying")).using("kills")
        if process.run == "dying":
            yield f"{name} is gone", state.with_process(number, process._replace(run="gone"))

    # ---- keeper ----

    def _keeper(self, state: State, number: int, keeper: Keeper) -> Iterator[Step]:
        name = f"keeper {number}"
        daemon = state.daemons[keeper.peer]
        if keeper.phase == "half":
            yield f"{name} runs its program", state.with_process(number, keeper._replace(phase="watch"))
        elif keeper.phase == "watch":
            yield from self._watch(state, number, keeper)
        elif keeper.phase == "end":
            yield from self._end_daemon(state, number, keeper)
        elif keeper.phase == "exec":
            yield from self._exec(state, number, keeper, keeper.successor, keeper.program)
        elif keeper.phase == "back":
            yield from self._exec(state, number, keeper, keeper.previous, -1)
        elif keeper.phase == "start":
            yield from self._start_daemon(state, number, keeper)
        elif daemon.phase != "half" or daemon.run == "gone":
            watching = keeper._replace(phase="watch", is_new=False)
            yield f"{name} sees that its daemon runs", state.with_process(number, watching)
        elif state.left.timeouts > 0:
            if self.rules.ends_a_late_start and daemon.run in ALIVE:
                state = state.with_process(keeper.peer, daemon._replace(run="dying"))
            state = state.with_channel((number, keeper.peer), None)
            yield f"{name} gives up its new daemon", self._not_started(state, number, keeper).using("timeouts")

    def _watch(self, state: State, number: int, keeper: Keeper) -> Iterator[Step]:
        name = f"keeper {number}"
        pair = (number, keeper.peer)
        channel = state.channel(pair)
        daemon = state.daemons[keeper.peer]
        if channel.to_keeper and not channel.cut:
            message = channel.to_keeper[0]
            acks = channel.acks | {_upgrade_of(message)} if message.startswith("upgrade") else channel.acks
            updated_keeper = _receive(keeper, message)
            if updated_keeper.successor and not self.rules.exec_after_end:
                updated_keeper = updated_keeper._replace(phase="exec")
            remaining = channel._replace(to_keeper=channel.to_keeper[1:], acks=acks)
            yield f"{name} takes '{message}'", state.with_channel(pair, remaining).with_process(number, updated_keeper)
        if daemon.run == "gone" or channel.cut or daemon.peer != number:
            yield f"{name} sees its daemon's end", state.with_process(number, keeper._replace(phase="end"))

    def _end_daemon(self, state: State, number: int, keeper: Keeper) -> Iterator[Step]:
        daemon = state.daemons[keeper.peer]
        if self.rules.keeper_ends_daemon and daemon.run in ALIVE:
            killed_state = state.with_process(keeper.peer, daemon._replace(run="dying"))
            yield f"keeper {number} kills its daemon", killed_state
            return
        if self.rules.keeper_ends_daemon and daemon.run != "gone":
            return
        if self.rules.reads_to_the_end:
            for message in state.channel((number, keeper.peer)).to_keeper:
                keeper = _receive(keeper, message)
        state = state.with_channel((number, keeper.peer), None)
        if self.rules.whole_before_heir and not keeper.whole:
            yield f"keeper {number} ends without an heir", state.with_process(number, keeper._replace(run="gone"))
        elif keeper.successor:
            yield f"keeper {number} hands over", state.with_process(number, keeper._replace(phase="exec"))
        elif keeper.previous < 0:
            yield f"keeper {number} goes on alone", state.with_process(number, keeper._replace(phase="start"))
        else:
            if self.rules.rolls_back:
                yield f"keeper {number} rolls back", state.with_process(number, keeper._replace(phase="back"))
            if daemon.phase not in ("half", "adopt") or not self.rules.rolls_back:  # it may have worked for long
                kept = keeper._replace(phase="start", previous=-1)
                yield f"keeper {number} keeps its program", state.with_process(number, kept)

    def _exec(self, state: State, number: int, keeper: Keeper, program: int, previous: int) -> Iterator[Step]:
        after = keeper._replace(phase="start", successor=0)
        if state.left.failures > 0:
            failed = after if self.rules.rolls_back_again else after._replace(previous=-1)
            yield f"keeper {number} cannot run program {program}", state.with_process(number, failed).using("failures")
        state = state.with_process(number, after._replace(program=program, previous=previous, is_new=True))
        if program in state.unchanged:
            state = state.violating("an upgrade takes place that was said not to")
        yield f"keeper {number} runs program {program}", state

    def _start_daemon(self, state: State, number: int, keeper: Keeper) -> Iterator[Step]:
        if state.left.failures > 0:
            failed_state = self._not_started(state, number, keeper).using("failures")
            yield f"keeper {number} cannot start a daemon", failed_state
        if len(state.daemons) >= self.processes:
            return
        successor = Daemon("run", "half", "linked", number, keeper.items, (), 0, False, keeper.program)
        spawning_keeper = keeper._replace(phase="spawning", peer=len(state.daemons))
        state = state.with_channel((number, len(state.daemons)), Channel())
        state = state._replace(daemons=(*state.daemons, successor))
        yield f"keeper {number} starts a daemon", state.with_process(number, spawning_keeper)

    def _not_started(self, state: State, number: int, keeper: Keeper) -> State:
        if keeper.is_new and keeper.previous >= 0 and self.rules.rolls_back:
            return state.with_process(number, keeper._replace(phase="back"))
        if keeper.is_new and not self.rules.retries_first_start:
            state = state.with_process(number, keeper._replace(run="gone"))
            return state.violating("the last process of a store ends by itself")
        return state.with_process(number, keeper._replace(phase="start"))

    # ---- daemon ----

    def _daemon(self, state: State, number: int, daemon: Daemon) -> Iterator[Step]:
        name = f"daemon {number}"
        if daemon.phase == "half":
            yield f"{name} runs its program", state.with_process(number, daemon._replace(phase="adopt"))
        elif daemon.phase == "adopt":
            yield from self._adopt(state, number, daemon)
        elif daemon.phase == "down" and not self.rules.daemon_is_ended_by_keeper:
            ended_state = state.with_process(number, daemon._replace(run="gone"))
            if state.keepers[daemon.peer].run not in ALIVE:
                ended_state = ended_state.violating("the last process of a store ends by itself")
            yield f"{name} ends for the upgrade", ended_state
        else:
            if daemon.phase == "down" and not self.rules.steps_down_alone:
                yield f"{name} accepts a client", state.violating("a client is cut off by an upgrade")
            yield from self._link(state, number, daemon)
            if not daemon.waits:
                yield from self._clients(state, number, daemon)

    def _adopt(self, state: State, number: int, daemon: Daemon) -> Iterator[Step]:
        if self.bad_program and daemon.program > 0:
            yield f"daemon {number} cannot start", state.with_process(number, daemon._replace(run="gone"))
            return
        others = [other for index, other in enumerate(state.daemons) if index != number]
        if self.rules.one_lock and any(other.phase in ("serve", "down") and other.run != "gone" for other in others):
            return
        serving_state = state.with_process(number, daemon._replace(phase="serve"))
        if not state.sealed <= daemon.items:
            serving_state = serving_state.violating("a sealed object is lost")
        yield f"daemon {number} serves", serving_state

    def _clients(self, state: State, number: int, daemon: Daemon) -> Iterator[Step]:
        name = f"daemon {number}"
        if daemon.pending == 0 and state.left.objects > 0:
            item = state.left.objects  # counts down, so every object has its own number
            putting = daemon._replace(items=daemon.items | {item}, pending=item)
            if daemon.link in ("linked", "filling", "ending"):
                putting = putting._replace(unsent=(*putting.unsent, str(item)))
                if not self.rules.holding_does_not_wait:
                    putting = putting._replace(waits=True)
            yield f"{name} gives memory for object {item}", state.with_process(number, putting).using("objects")
        if daemon.pending and (self._safe(daemon) or not self.rules.safe_before_published):
            sealed_state = state._replace(sealed=state.sealed | {daemon.pending})
            yield f"{name} seals object {daemon.pending}", sealed_state.with_process(number, daemon._replace(pending=0))
        if state.left.upgrades > 0 and daemon.link == "linked" and daemon.upgrade == 0 and daemon.phase == "serve":
            upgrade = state.left.upgrades
            asked = daemon._replace(unsent=(*daemon.unsent, f"upgrade {upgrade}"), upgrade=upgrade)
            yield f"{name} is asked for upgrade {upgrade}", state.with_process(number, asked).using("upgrades")

    @staticmethod
    def _safe(daemon: Daemon) -> bool:
        return daemon.link in ("starting", "filling") or str(daemon.pending) not in daemon.unsent

    def _link(self, state: State, number: int, daemon: Daemon) -> Iterator[Step]:
        name = f"daemon {number}"
        keeper = state.keepers[daemon.peer]
        pair = (daemon.peer, number)
        channel = state.channel(pair)
        if daemon.link == "ending":
            if keeper.run in ALIVE:
                yield f"{name} kills its keeper", state.with_process(daemon.peer, keeper._replace(run="dying"))
            elif keeper.run == "gone":
                yield from self._start_keeper(state, number, daemon)
            return
        if keeper.run == "gone" or (channel.cut and not self.rules.daemon_ends_keeper):
            yield from self._start_keeper(state, number, daemon)
            return
        if channel.cut:
            lost = daemon._replace(link="ending", waits=False)
            yield f"{name} loses its keeper", state.with_process(number, lost)
            return
        if daemon.link == "linked" and not self.rules.silence_is_not_death and (daemon.unsent or channel.to_keeper):
            yield from self._start_keeper(state, number, daemon)
        if daemon.link == "starting":
            if keeper.phase != "half":
                yield f"{name} fills its keeper", state.with_process(number, self._filling(daemon))
            elif state.left.timeouts > 0:
                late = state.with_process(number, daemon._replace(link="ending", waits=False)).using("timeouts")
                yield f"{name} gives up its new keeper", late
            return
        yield from self._upgrade(state, number, daemon)
        if daemon.waits and not daemon.unsent and not channel.to_keeper:
            yield f"{name} has its answer", state.with_process(number, daemon._replace(waits=False))
        if daemon.unsent and len(channel.to_keeper) < CHANNEL_CAPACITY:
            new_channel = channel._replace(to_keeper=(*channel.to_keeper, daemon.unsent[0]))
            new_daemon = daemon._replace(unsent=daemon.unsent[1:])
            yield f"{name} sends", state.with_channel(pair, new_channel).with_process(number, new_daemon)
        if daemon.link == "filling" and not daemon.unsent:
            linked_daemon = daemon._replace(link="linked", unsent=("all",) if self.rules.all_before_whole else ())
            yield f"{name} has filled its keeper", state.with_process(number, linked_daemon)

    def _upgrade(self, state: State, number: int, daemon: Daemon) -> Iterator[Step]:
        """The keeper's answer, or its absence."""
        name = f"daemon {number}"
        pair = (daemon.peer, number)
        channel = state.channel(pair)
        cancel = f"cancel {daemon.upgrade}"
        for upgrade in channel.acks:
            taken = state.with_channel(pair, channel._replace(acks=channel.acks - {upgrade}))
            if upgrade != daemon.upgrade or daemon.phase == "down":
                yield f"{name} ignores a late answer", taken
                continue
            unsent = tuple(message for message in daemon.unsent if message != cancel)
            stepping = daemon._replace(phase="down", upgrade=0, gave_up=False, unsent=(*unsent, "over"))
            yield f"{name} answers upgrade {upgrade} and steps down", taken.with_process(number, stepping)
        if not daemon.upgrade:
            return
        told_state = state._replace(unchanged=state.unchanged | {daemon.upgrade})
        told_daemon = daemon._replace(upgrade=0, gave_up=False)
        request = f"upgrade {daemon.upgrade}"
        if daemon.gave_up and cancel not in daemon.unsent:
            yield f"{name} says that nothing changed", told_state.with_process(number, told_daemon)
        elif not daemon.gave_up and state.left.timeouts > 0:
            step = f"{name} gives upgrade {daemon.upgrade} up"
            if request in daemon.unsent:
                unsent = tuple(message for message in daemon.unsent if message != request)
                yield step, told_state.with_process(number, told_daemon._replace(unsent=unsent)).using("timeouts")
                return
            if self.rules.unchanged_when_certain:
                cancelling = daemon._replace(gave_up=True, unsent=(*daemon.unsent, cancel))
                yield step, state.with_process(number, cancelling).using("timeouts")
            else:
                cancelling = told_daemon._replace(unsent=(*daemon.unsent, cancel))
                yield step, told_state.with_process(number, cancelling).using("timeouts")

    def _filling(self, daemon: Daemon) -> Daemon:
        messages = tuple(str(item) for item in sorted(daemon.items))
        if not self.rules.all_before_whole:
            messages += ("all",)
        return daemon._replace(link="filling", unsent=messages, waits=False)

    def _start_keeper(self, state: State, number: int, daemon: Daemon) -> Iterator[Step]:
        if len(state.keepers) >= self.processes:
            return
        new_keeper = len(state.keepers)
        half = Keeper("run", "half", number, frozenset(), False, daemon.program)
        state = state._replace(keepers=(*state.keepers, half))
        if state.keepers[daemon.peer].run == "gone":
            state = state.with_channel((daemon.peer, number), None)
        if daemon.upgrade:
            state = state._replace(unchanged=state.unchanged | {daemon.upgrade})
        waits = not self.rules.exec_is_not_waited_for
        new_daemon = daemon._replace(
            phase="serve", link="starting", peer=new_keeper, unsent=(), waits=waits, upgrade=0, gave_up=False
        )
        state = state.with_channel((new_keeper, number), Channel())
        yield f"daemon {number} starts keeper {new_keeper}", state.with_process(number, new_daemon)


def _upgrade_of(message: str) -> int:
    return int(message.rpartition(" ")[2])


def _receive(keeper: Keeper, message: str) -> Keeper:
    if message == "all":
        return keeper._replace(whole=True)
    if message == "over":
        return keeper._replace(phase="end")
    if message.startswith("upgrade"):
        return keeper._replace(successor=_upgrade_of(message))
    if message.startswith("cancel"):
        return keeper._replace(successor=0)
    return keeper._replace(items=keeper.items | {int(message)})
