"""Whose fault a pause is: the guarantees on waiting, and the report of a run.

docs/daemon.md, "Process failures": reading what is there asks nobody, so nothing may stall it. What asks the
daemon waits while there is none that works: stopped, killed and not replaced yet, or handing over. Nothing else may
stall it: no keeper that is stopped or replaced, no client, no log that nobody reads.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

# Of a pause that nothing excuses: as the store promises where the soak has the machine (`make soak`). Beside other
# tests, which take the processors from some processes only, it finds who is kept waiting for a time-out.
MOST_SECONDS = 1.0 if "ENTREPOT_SOAK_SECONDS" in os.environ else 4.0
COMEBACK_SECONDS = 1.0  # after the daemon is there again: to connect to it, and for it to answer all that waited
NOTABLE_SECONDS = 0.25


@dataclass
class Span:
    """A while, by the monotonic clock. One that has not ended lasts for ever.

    Attributes:
        kind: what was the matter.
        begin: of it.
        end: of it.
        daemon_away: whoever asks the daemon meanwhile has to wait.
    """

    kind: str
    begin: float
    end: float = float("inf")
    daemon_away: bool = False

    @property
    def seconds(self) -> float:
        return self.end - self.begin

    def shared(self, other: Span) -> float:
        """Seconds that belong to both."""
        return max(0.0, min(self.end, other.end) - max(self.begin, other.begin))

    def overlaps(self, other: Span) -> bool:
        return self.begin < other.end and other.begin < self.end


def stall(pause: Span, excuses: Iterable[Span], machine: Iterable[Span]) -> float:
    """How long somebody was kept waiting: the longest piece of a pause that no excuse covers, less the machine's part.

    The longest and not the sum: what waited twice, with an excuse between, did not wait for long. But what the machine
    took is taken off, or its many short pauses would cut a stall to pieces.
    """
    pieces, at = [], pause.begin
    for excuse in sorted((one for one in excuses if one.overlaps(pause)), key=lambda one: one.begin):
        if excuse.begin > at:
            pieces.append(Span(pause.kind, at, excuse.begin))
        at = max(at, excuse.end)
    if pause.end > at:
        pieces.append(Span(pause.kind, at, pause.end))
    late = [one for one in machine if one.overlaps(pause)]  # of one process, so they do not overlap each other
    return max((piece.seconds - sum(piece.shared(one) for one in late) for piece in pieces), default=0.0)


def read_pauses(path: Path, kind: str) -> tuple[list[Span], int]:
    """What a probe wrote: its pauses, and how often it did its work (0: it never came to its end)."""
    pauses, done = [], 0
    for line in path.read_text().splitlines():
        first, _, second = line.partition(" ")
        if first == "done":
            done = int(second)
        elif first != "E":
            pauses.append(Span(kind, float(first), float(second)))
    return pauses, done


@dataclass
class Report:
    """What a run came to.

    Attributes:
        load: what the clients did.
        seed: of the choice of events.
        most_seconds: of a pause that nothing excuses.
        seconds: it took.
        events: how many there were of each kind.
        not_tried: kinds that cannot be had on this machine, and why.
        longest_stalls: by probe, then by the kind of event that there was meanwhile: seconds, without what the machine
            took. Of an event during which the daemon works, without what another one excuses. ``quiet``: no event;
            ``unexcused``: what the guarantees are about.
        machine_stall: the longest that a bare timer was late.
        probe_rounds: how often each probe did its work.
        values_checked: how many values the clients compared, at least.
        objects_at_end: so many were in the store and right.
        second_daemons: moments at which more than one daemon, or more than one store, was seen.
        looks_for_second_daemons: how often that was looked at.
        log_lines_dropped: as the log itself says, and as ``status`` said.
        memory_limit_met: how often the store's control group had no page left.
        notable_pauses: of the probes, excused or not, and what there was meanwhile.
        broken: the guarantees that did not hold.
    """

    load: str
    seed: int
    most_seconds: float = MOST_SECONDS
    seconds: float = 0.0
    events: dict[str, int] = field(default_factory=dict[str, int])
    not_tried: dict[str, str] = field(default_factory=dict[str, str])
    longest_stalls: dict[str, dict[str, float]] = field(default_factory=dict[str, dict[str, float]])
    machine_stall: float = 0.0
    probe_rounds: dict[str, int] = field(default_factory=dict[str, int])
    values_checked: int = 0
    objects_at_end: int = 0
    second_daemons: int = 0
    looks_for_second_daemons: int = 0
    log_lines_dropped: dict[str, int] = field(default_factory=dict[str, int])
    memory_limit_met: int = 0
    notable_pauses: list[str] = field(default_factory=list[str])
    broken: list[str] = field(default_factory=list[str])

    def judge(self, probe: str, pauses: list[Span], events: list[Span], machine: list[Span]) -> None:
        """Enter a probe's pauses, and what of them nothing excuses."""
        stalls = self.longest_stalls.setdefault(probe, {"unexcused": 0.0})
        away = [
            Span(event.kind, event.begin, event.end + COMEBACK_SECONDS)
            for event in events
            if event.daemon_away and probe == "puts"
        ]
        for pause in pauses:
            whole, unexcused = stall(pause, [], machine), stall(pause, away, machine)
            meanwhile = [event for event in events if event.overlaps(pause)]
            for event in meanwhile or [Span("quiet", pause.begin)]:
                seconds = whole if event.daemon_away else unexcused
                stalls[event.kind] = max(stalls.get(event.kind, 0.0), round(seconds, 3))
            stalls["unexcused"] = max(stalls["unexcused"], round(unexcused, 3))
            said = ", ".join(
                f"{event.kind} {event.begin - pause.begin:+.2f}..{event.end - pause.begin:+.2f}" for event in meanwhile
            )
            told = f"{pause.seconds:.2f} s from {pause.begin:.2f} (meanwhile: {said or 'nothing'})"
            if pause.seconds > NOTABLE_SECONDS:
                self.notable_pauses.append(f"{probe}: {told}")
            if unexcused > self.most_seconds:
                self.broken.append(f"{probe} stood still for {unexcused:.2f} s without an excuse, in a pause of {told}")

    def write(self, folder: Path) -> str:
        """Write it as JSON and as text, which it returns."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"report-{self.load}.json").write_text(json.dumps(asdict(self), indent=2) + "\n")
        text = self.text()
        (folder / f"report-{self.load}.txt").write_text(text)
        return text

    def text(self) -> str:
        """For people."""
        lines = [
            f"soak, {self.load}: {self.seconds:.0f} s, seed {self.seed}",
            "events           " + ", ".join(f"{kind} {count}" for kind, count in sorted(self.events.items())),
            *(f"not tried        {kind}: {why}" for kind, why in self.not_tried.items()),
            f"values           {self.values_checked} checked by clients, {self.objects_at_end} right at the end",
            f"second daemons   {self.second_daemons} in {self.looks_for_second_daemons} looks",
            f"log lines lost   {self.log_lines_dropped}",
            f"memory limit     met {self.memory_limit_met} times",
            f"machine          a bare timer was late by at most {self.machine_stall:.3f} s",
        ]
        for probe, stalls in self.longest_stalls.items():
            lines.append(f"longest stalls   of {probe}, in {self.probe_rounds.get(probe, 0)} rounds:")
            lines += [f"  {seconds:8.3f} s  {kind}" for kind, seconds in sorted(stalls.items())]
        lines += [f"BROKEN           {text}" for text in self.broken] or ["every guarantee held"]
        return "\n".join(lines) + "\n"
