"""Parameters and results shared by all orchestrators' runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from examples.flights.measure.memory import Sample
from examples.flights.measure.meter import CallTotals
from examples.flights.transports import Transport

ROOT = Path(__file__).resolve().parents[2]
MB = 1_000_000
MIB = 1024 * 1024
SCOPE = "flights"  # of all runs; each run has a store of its own


@dataclass(frozen=True)
class RunConfig:
    """Parameters shared by all runs of one demo.

    Attributes:
        scale, rows: of the data; see :func:`examples.flights.data.load_tables`.
        work: directory for all temporary files.
        address: of the store; ``None`` if no run uses it.
        timeout: of one run, in seconds.
        print_progress: prints a line of progress.
    """

    scale: int
    rows: int | None
    work: Path
    address: str | None
    timeout: float
    print_progress: Callable[[str], None]

    def folder(self, transport: Transport) -> Path:
        """The directory of one transport's run, created if missing."""
        folder = self.work / f"{transport.orchestrator}-{transport.name}"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def environment(self) -> dict[str, str]:
        """Environment of every process: this one's, plus PYTHONPATH, the store's address and telemetry switched off."""
        variables = dict(os.environ)
        for name in list(variables):
            if name.startswith(("AIRFLOW", "DAGSTER", "KEDRO", "ENTREPOT_", "FLIGHTS_")):
                del variables[name]  # the demo measures its own setup, not what the shell happens to have set
        path = [str(ROOT), variables.get("PYTHONPATH", "")]
        variables["PYTHONPATH"] = os.pathsep.join(part for part in path if part)
        variables["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), variables.get("PATH", os.defpath)])
        variables["DO_NOT_TRACK"] = "1"
        variables["PYTHONUNBUFFERED"] = "1"
        if self.address is not None:
            variables["ENTREPOT_ADDRESS"] = self.address
            variables["ENTREPOT_SCOPE"] = SCOPE
        return variables


@dataclass(frozen=True)
class Outcome:
    """The result of one run.

    Attributes:
        transport: which.
        report: the job's answer.
        seconds: duration of the run.
        begin, end: in seconds since the epoch.
        call_totals: of the measured calls.
        travelled: for each task, what the orchestrator stores in place of its value, as text.
    """

    transport: Transport
    report: dict[str, Any]
    seconds: float
    begin: float
    end: float
    call_totals: CallTotals
    travelled: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Figures:
    """One row of the table.

    Attributes:
        orchestrator, name, label, what: of the transport.
        write_seconds, read_seconds: time in the orchestrator's save and load calls.
        calls: number of these calls.
        bytes_written, bytes_read: through files, pipes and sockets.
        bytes_stored: copied into shared memory.
        peak_bytes: peak memory of the orchestrator's processes and the store during the run.
        idle_bytes: their memory when the run began.
        peak: the sample with the peak, which tells what the memory was used for.
        run_seconds: the run from end to end.
        samples: of memory, taken during the run.
        report: the job's answer.
        travelled: see :class:`Outcome`.
    """

    orchestrator: str
    name: str
    label: str
    what: str
    write_seconds: float
    read_seconds: float
    calls: int
    bytes_written: int
    bytes_read: int
    bytes_stored: int
    peak_bytes: int
    idle_bytes: int
    peak: Sample
    run_seconds: float
    samples: int
    report: dict[str, Any]
    travelled: dict[str, str]

    @property
    def sharing_seconds(self) -> float:
        """Time in save and load calls together."""
        return self.write_seconds + self.read_seconds

    @property
    def bytes_moved(self) -> int:
        """All bytes copied to pass values between tasks."""
        return self.bytes_written + self.bytes_read + self.bytes_stored

    @staticmethod
    def of(outcome: Outcome, samples: list[Sample], bytes_stored: int) -> Figures:
        """Compute a run's figures.

        Args:
            outcome: the run.
            samples: of its memory, including samples from before and after the run.
            bytes_stored: bytes that it copied into shared memory.

        Raises:
            ValueError: no sample was taken during the run.
        """
        during = [sample for sample in samples if outcome.begin <= sample.time <= outcome.end]
        before = [sample.total for sample in samples if sample.time < outcome.begin]
        if not during:
            raise ValueError(f"no memory sample was taken during the {outcome.seconds:.1f} s of {outcome.transport}")
        call_totals = outcome.call_totals
        peak = max(during, key=lambda sample: sample.total)
        return Figures(
            orchestrator=outcome.transport.orchestrator,
            name=outcome.transport.name,
            label=outcome.transport.label,
            what=outcome.transport.what,
            write_seconds=call_totals.write_seconds,
            read_seconds=call_totals.read_seconds,
            calls=call_totals.writes + call_totals.reads,
            bytes_written=call_totals.written,
            bytes_read=call_totals.read,
            bytes_stored=bytes_stored,
            peak_bytes=peak.total,
            idle_bytes=before[-1] if before else 0,
            peak=peak,
            run_seconds=outcome.seconds,
            samples=len(during),
            report=outcome.report,
            travelled=outcome.travelled,
        )
