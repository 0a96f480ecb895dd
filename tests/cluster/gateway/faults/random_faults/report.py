"""The report of a run, as text and JSON."""

from __future__ import annotations

import json
import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MAX_BROKEN = 50


@dataclass
class Report:
    """What happened in a run. Thread-safe through its methods.

    Attributes:
        seed: of all choices.
        directory: kind of the directory's server.
        seconds: how long faults were caused.
        faults: number of faults of each kind.
        calls: number of calls of each kind.
        errors: number of errors of each kind of call, by class.
        longest: seconds of the longest call of each kind.
        calms: how often everything was healed and checked.
        longest_recovery: seconds from healing until all hosts could read from each other.
        certain_reads: of what had to be there, from all hosts, with nothing wrong.
        doubtful_reads: of what might have been lost, likewise, and how many of them were.
        notable: errors with a type for which no fault was the reason, such as those of a busy machine.
        broken: what did not hold.
    """

    seed: int
    directory: str
    seconds: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    longest: dict[str, float] = field(default_factory=dict)
    calms: int = 0
    longest_recovery: float = 0.0
    certain_reads: int = 0
    doubtful_reads: int = 0
    doubtful_lost: int = 0
    notable: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()

    def called(self, what: str, seconds: float, error: BaseException | None) -> None:
        """Count a call."""
        with self._lock:
            self.calls[what] += 1
            self.longest[what] = max(self.longest.get(what, 0.0), round(seconds, 2))
            if error is not None:
                self.errors[f"{what}: {type(error).__name__}"] += 1

    def notes(self, what: str) -> None:
        """Note an error that no fault explains."""
        with self._lock:
            if len(self.notable) < MAX_BROKEN:
                self.notable.append(what)

    def breaks(self, what: str) -> None:
        """Note that something did not hold."""
        with self._lock:
            if len(self.broken) < MAX_BROKEN:
                self.broken.append(what)

    def to_json(self) -> dict[str, Any]:
        """All of it, by name."""
        with self._lock:
            fields = {name: value for name, value in vars(self).items() if not name.startswith("_")}
            return {
                name: dict(sorted(value.items())) if isinstance(value, dict) else value
                for name, value in fields.items()
            }

    def write(self, folder: Path) -> str:
        """Write it to a folder as text and JSON; returns the text."""
        folder.mkdir(parents=True, exist_ok=True)
        values = self.to_json()
        lines = [f"Random faults in a cluster: seed {self.seed}, directory in {self.directory}"]
        for name, value in values.items():
            if isinstance(value, dict):
                lines.append(f"{name}:")
                lines += [f"  {key}: {number}" for key, number in value.items()]
            elif isinstance(value, list):
                lines.append(f"{name}: {len(value)}")
                lines += [f"  {item}" for item in value]
            else:
                lines.append(f"{name}: {value}")
        text = "\n".join(lines) + "\n"
        (folder / "random-faults.txt").write_text(text)
        (folder / "random-faults.json").write_text(json.dumps(values, indent=1) + "\n")
        return text
