"""Attribution of pauses: the guarantees on waiting, and the report of a run.

docs/daemon.md, "Process failures": reading existing objects asks nobody, so nothing may stall it. Requests to the
daemon wait while no daemon works: stopped, killed and not replaced yet, or handing over. Nothing else may stall them:
no keeper that is stopped or replaced, no client, no unread log.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

# Longest pause without an excuse. The strict value holds if the soak has the machine to itself (`make soak`). Beside
# other tests, which take CPU time from some processes only, the lenient value finds clients that wait for a timeout.
MOST_SECONDS = 1.0 if "ENTREPOT_SOAK_SECONDS" in os.environ else 4.0
RECOVERY_SECONDS = 1.0  # after the daemon is back: to reconnect to it, and for it to answer all waiting requests
NOTABLE_SECONDS = 0.25


@dataclass
class Span:
    """Time span by the monotonic clock; infinite if it has not ended.

    Attributes:
        kind: what happened.
        begin: start time.
        end: end time.
        daemon_away: requests to the daemon have to wait meanwhile.
    """

    kind: str
    begin: float
    end: float = float("inf")
    daemon_away: bool = False

    @property
    def seconds(self) -> float:
        return self.end - self.begin

    def overlap_seconds(self, other: Span) -> float:
        """Overlap in seconds."""
        return max(0.0, min(self.end, other.end) - max(self.begin, other.begin))

    def overlaps(self, other: Span) -> bool:
        return self.begin < other.end and other.begin < self.end


def stall(pause: Span, excuses: Iterable[Span], machine: Iterable[Span]) -> float:
    """Seconds of a stall: the longest piece of a pause not covered by an excuse, less the machine's delays.

    The longest, not the sum: two short waits with an excuse in between are not a long wait. The machine's delays are
    subtracted instead of cut out, since its many short pauses would cut a stall to pieces.
    """
    pieces, position = [], pause.begin
    for excuse in sorted((span for span in excuses if span.overlaps(pause)), key=lambda span: span.begin):
        if excuse.begin > position:
            pieces.append(Span(pause.kind, position, excuse.begin))
        position = max(position, excuse.end)
    if pause.end > position:
        pieces.append(Span(pause.kind, position, pause.end))
    machine_delays = [span for span in machine if span.overlaps(pause)]  # of one process, so they do not overlap
    stalls = (piece.seconds - sum(piece.overlap_seconds(span) for span in machine_delays) for piece in pieces)
    return max(stalls, default=0.0)


def read_pauses(path: Path, kind: str) -> tuple[list[Span], int]:
    """Return a probe's pauses, and how often it did its work (0: it did not finish)."""
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
    """Results of a run.

    Attributes:
        load: load of the clients.
        seed: seed of the random events.
        most_seconds: limit of an unexcused pause.
        seconds: duration.
        events: number of events of each kind.
        not_tried: kinds that were not tried, and why.
        longest_stalls: by probe, then by kind of a concurrent event: seconds, less the machine's delays. For an event
            during which the daemon works, time excused by other events is not counted. ``quiet``: no event;
            ``unexcused``: what the guarantees are about.
        machine_stall: longest delay of a bare timer.
        probe_rounds: how often each probe did its work.
        values_checked: minimum number of values that the clients compared.
        objects_at_end: number of objects in the store at the end, all correct.
        plasma_objects_at_end: number of these that Plasma clients put, all correct as they see them.
        second_daemons: how often more than one daemon, or more than one store, was seen.
        looks_for_second_daemons: number of those checks.
        log_lines_dropped: according to the log itself, and according to ``status``.
        memory_limit_met: how often the store's control group hit its limit.
        notable_pauses: of the probes, excused or not, with concurrent events.
        broken: violated guarantees.
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
    plasma_objects_at_end: int = 0
    second_daemons: int = 0
    looks_for_second_daemons: int = 0
    log_lines_dropped: dict[str, int] = field(default_factory=dict[str, int])
    memory_limit_met: int = 0
    notable_pauses: list[str] = field(default_factory=list[str])
    broken: list[str] = field(default_factory=list[str])

    def judge(self, probe: str, pauses: list[Span], events: list[Span], machine: list[Span]) -> None:
        """Enter a probe's pauses, and their unexcused parts."""
        stalls = self.longest_stalls.setdefault(probe, {"unexcused": 0.0})
        excuses = [
            Span(event.kind, event.begin, event.end + RECOVERY_SECONDS)
            for event in events
            if event.daemon_away and probe == "puts"
        ]
        for pause in pauses:
            full_stall, unexcused = stall(pause, [], machine), stall(pause, excuses, machine)
            meanwhile = [event for event in events if event.overlaps(pause)]
            for event in meanwhile or [Span("quiet", pause.begin)]:
                seconds = full_stall if event.daemon_away else unexcused
                stalls[event.kind] = max(stalls.get(event.kind, 0.0), round(seconds, 3))
            stalls["unexcused"] = max(stalls["unexcused"], round(unexcused, 3))
            concurrent_text = ", ".join(
                f"{event.kind} {event.begin - pause.begin:+.2f}..{event.end - pause.begin:+.2f}" for event in meanwhile
            )
            description = f"{pause.seconds:.2f} s from {pause.begin:.2f} (meanwhile: {concurrent_text or 'nothing'})"
            if pause.seconds > NOTABLE_SECONDS:
                self.notable_pauses.append(f"{probe}: {description}")
            if unexcused > self.most_seconds:
                self.broken.append(
                    f"{probe} stood still for {unexcused:.2f} s without an excuse, in a pause of {description}"
                )

    def write(self, folder: Path) -> str:
        """Write the report as JSON and as text, and return the text."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"report-{self.load}.json").write_text(json.dumps(asdict(self), indent=2) + "\n")
        text = self.text()
        (folder / f"report-{self.load}.txt").write_text(text)
        return text

    def text(self) -> str:
        """Format the report for people."""
        lines = [
            f"soak, {self.load}: {self.seconds:.0f} s, seed {self.seed}",
            "events           " + ", ".join(f"{kind} {count}" for kind, count in sorted(self.events.items())),
            *(f"not tried        {kind}: {why}" for kind, why in self.not_tried.items()),
            f"values           {self.values_checked} checked by clients, {self.objects_at_end} right at the end, "
            f"{self.plasma_objects_at_end} of them for Plasma clients",
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
