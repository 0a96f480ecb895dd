"""``entrepot pipe learn``: what was seen, and the highest rung on which the tests pass."""

from __future__ import annotations

import argparse
import fnmatch
import glob
import os
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from entrepot import Store, connect
from entrepot.errors import InvalidArgument

from entrepot_pipes.learn.proxy import Proxy, Rung
from entrepot_pipes.learn.supervisor import Call, run_supervised
from entrepot_pipes.profiles.model import Profile, Use, write_profile
from entrepot_pipes.text.detect import detect
from entrepot_pipes.text.dialect import Dialect

_RUNGS: tuple[Rung, ...] = ("blocks", "bytes")
_SAMPLE_BYTES = 1 << 18


@dataclass
class _Seen:
    """How the program used its data file, in an ordinary run. Its methods are called in threads."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    exporters: set[str] = field(default_factory=set)  # guarded by lock, as is all below
    importers: set[str] = field(default_factory=set)
    opens: dict[tuple[int, str, bool], int] = field(default_factory=dict)
    seeks: int = 0
    appends: int = 0
    changes: int = 0
    dialect: Dialect | None = None

    def answer(self, call: Call) -> None:
        with self.lock:
            if call.name == "lseek":
                self.seeks += 1
            elif call.opens:
                mode = call.flags & os.O_ACCMODE
                writes = mode != os.O_RDONLY
                self.changes += mode == os.O_RDWR
                self.appends += bool(call.flags & os.O_APPEND)
                (self.exporters if writes else self.importers).add(os.path.basename(call.program))
                key = (call.pid, call.path, writes)
                self.opens[key] = self.opens.get(key, 0) + 1
                if not writes and self.dialect is None and os.path.isfile(call.path):
                    with open(call.path, "rb") as file:
                        sample = file.read(_SAMPLE_BYTES)
                    self.dialect = detect(sample) if sample else None


def learn(arguments: argparse.Namespace) -> int:
    """Run the tests on each rung, from the highest; write the profile."""
    words: list[str] = arguments.program[1:] if arguments.program[:1] == ["--"] else arguments.program
    if not words:
        raise InvalidArgument("give the tests to run: entrepot pipe learn FILE -- PROGRAM [ARGUMENT ...]")
    if not 0 < arguments.timeout < float("inf"):
        raise InvalidArgument(f"--timeout must be a number of seconds above 0, but got {arguments.timeout}")
    pattern = _pattern(arguments.file)
    with connect(arguments.address, session=arguments.session, scope=arguments.scope, cluster=False) as store:
        profile = learned(store, words, pattern, arguments.engine, arguments.engine_version, arguments.timeout)
    text = write_profile(profile, arguments.output)
    if arguments.output is None:
        sys.stdout.write(text)
    else:
        print(f"{profile.engine}: rung {profile.rung}: {profile.reason}; written to {arguments.output}")
    return 0


def learned(store: Store, words: list[str], pattern: str, engine: str | None, version: str, timeout: float) -> Profile:
    """What the tests show.

    Raises:
        InvalidArgument: they fail without pipes, or do not open the file.
        NoNotifications, Timeout: as ``run_supervised``.
    """
    seen = _Seen()
    code = run_supervised(words, pattern, seen.answer, timeout)
    if code:
        raise InvalidArgument(
            f"the tests end with exit code {code} without any pipe: only tests that pass teach anything"
        )
    if not seen.opens:
        raise InvalidArgument(
            f"the tests pass and open no file that matches {pattern!r}: give the path of the data file"
        )
    _remove(pattern)
    reasons: list[str] = []
    rung: Any = "file"
    for candidate in _RUNGS:
        proxy = Proxy(store, candidate)
        code = run_supervised(words, pattern, proxy.answer, timeout)
        proxy.finish()
        _remove(pattern)
        if code == 0 and not proxy.errors and proxy.exports + proxy.imports:
            rung = candidate
            reasons.append(
                f"{candidate}: passed with {proxy.exports} exports and {proxy.imports} imports through pipes"
            )
            break
        why = proxy.errors[0] if proxy.errors else f"exit code {code}" if code else "nothing could be a pipe"
        reasons.append(f"{candidate}: {why}")
    use = Use(
        exporters=sorted(seen.exporters),
        importers=sorted(seen.importers),
        seeks=seen.seeks,
        double_opens=sum(count > 1 for count in seen.opens.values()),
        appends=seen.appends,
        opens_to_change=seen.changes,
    )
    return Profile(
        engine=engine or os.path.basename(words[0]),
        versions=[version] if version else [],
        rung=rung,
        reason="; ".join(reasons),
        dialect=seen.dialect.to_dict() if seen.dialect else None,
        use=use,
    )


def _pattern(file: str) -> str:
    absolute = os.path.abspath(file)
    folder = os.path.dirname(absolute)
    return (
        os.path.join(os.path.realpath(folder), os.path.basename(absolute)) if not glob.has_magic(folder) else absolute
    )


def _remove(pattern: str) -> None:
    """The data files of the run before, which the next run would otherwise find. Only files are removed."""
    for path in glob.glob(pattern):
        if fnmatch.fnmatchcase(path, pattern) and os.path.isfile(path):
            Path(path).unlink()
