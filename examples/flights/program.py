"""What the demos have in common as programs: options, progress, and an end that leaves no process behind."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

from examples.flights import processes
from examples.flights.data import DataMissing
from examples.flights.processes import DemoError


def split_names(text: str) -> list[str]:
    """The names in a list with commas; the type of an option."""
    return [name.strip() for name in text.split(",") if name.strip()]


def check_at_least_one(parser: argparse.ArgumentParser, options: argparse.Namespace, names: Sequence[str]) -> None:
    """End the program with an error if one of these options has a value below 1."""
    for name in names:
        value = getattr(options, name)
        if value is not None and value < 1:
            parser.error(f"--{name} must be at least 1, not {value}")


def check_known(parser: argparse.ArgumentParser, given: Sequence[str], available: Sequence[str], kind: str) -> None:
    """End the program with an error if one of these names is not available."""
    for unknown in (name for name in given if name not in available):
        parser.error(f"unknown {kind} {unknown!r}; available: {', '.join(available)}")


def print_progress(line: str) -> None:
    """Print a line of progress with the time of day."""
    print(f"{time.strftime('%H:%M:%S')}  {line}", flush=True)


def run(body: Callable[[Path], bool], prefix: str, *, keep: bool) -> int:
    """Run a demo in a working folder of its own; every process that it starts ends with it.

    Args:
        body: the demo; returns whether all went well.
        prefix: of the working folder, a short one: the path of a socket is limited to 107 bytes.
        keep: keep the working folder. It is kept after a failure in any case.

    Returns:
        the exit code: 0 if all went well, 1 if not, 130 if interrupted.
    """
    processes.adopt_orphans()
    previous = signal.signal(signal.SIGTERM, _interrupt)
    work = Path(tempfile.mkdtemp(prefix=prefix))
    failed = True
    try:
        failed = not body(work)
        return 1 if failed else 0
    except (DemoError, DataMissing) as error:
        print(f"\ndemo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ndemo: interrupted", file=sys.stderr)
        failed = False
        return 130
    finally:
        # Cleaning up is not interruptible; its duration is bounded.
        interrupted = signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        processes.kill_orphans()
        if failed or keep:
            print(f"The logs are in the working folder {work}", file=sys.stderr)
        else:
            shutil.rmtree(work, ignore_errors=True)
        signal.signal(signal.SIGINT, interrupted)
        signal.signal(signal.SIGTERM, previous)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
