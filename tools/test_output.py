"""Parses test runners' output: the closing line, which tests failed, how long each took.

The text is parsed rather than a report file, because it exists even if a runner was killed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

CTEST_TOTAL = re.compile(r"(\d+) tests? failed out of (\d+)")
CTEST_TEST = re.compile(r"^\s*\d+/\d+ Test\s+#\d+: (\S+) \.*\s*(?P<verdict>\S.*?)\s+(?P<time>[0-9.]+) sec")
GTEST_FAILED = re.compile(r"^\[  FAILED  \] ([^\s,]+).*\(\d+ ms\)$")
PYTEST_CLOSING = re.compile(r"^=* ?(?P<counts>\d+ \w+(?:, \d+ \w+)*) in [0-9.]+s")
PYTEST_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+\.(?:py|md)(?:::.+?)?)(?: - .*)?$")
PYTEST_DURATION = re.compile(r"^(?P<time>[0-9.]+)s (?:call|setup|teardown)\s+(\S+\.(?:py|md).*)$")


@dataclass
class RunnerResult:
    """The parsed output of one runner.

    Attributes:
        closing: the runner's closing line, "" if it did not get there.
        passed, failed: as counted in the closing line.
        failures: names of failed tests, in output order.
        seconds: duration of each test that reports it, including set-up and tear-down.
    """

    closing: str = ""
    passed: int = 0
    failed: int = 0
    failures: list[str] = field(default_factory=list[str])
    seconds: dict[str, float] = field(default_factory=dict[str, float])


def read(lines: Iterable[str]) -> RunnerResult:
    """Parse the output of ctest or pytest."""
    result = RunnerResult()
    program = ""  # the ctest program whose output is being read
    for line in lines:
        if test := CTEST_TEST.match(line):
            program = test[1]
            result.seconds[program] = float(test["time"])
            if test["verdict"] != "Passed":
                result.failures.append(program)
        elif case := GTEST_FAILED.match(line):
            _add(result.failures, f"{program}: {case[1]}")
        elif failure := PYTEST_FAILED.match(line):
            _add(result.failures, failure[1])
        elif duration := PYTEST_DURATION.match(line):
            result.seconds[duration[2]] = result.seconds.get(duration[2], 0.0) + float(duration["time"])
        elif total := CTEST_TOTAL.search(line):
            result.failed = int(total[1])
            result.passed = int(total[2]) - result.failed
            result.closing = line
        elif closing := PYTEST_CLOSING.match(line):
            counts = {word: int(count) for count, word in re.findall(r"(\d+) (\w+)", closing["counts"])}
            result.failed = counts.get("failed", 0) + counts.get("error", 0) + counts.get("errors", 0)
            result.passed = counts.get("passed", 0)
            result.closing = line.strip("= ")
    return result


def _add(names: list[str], name: str) -> None:
    if name not in names:
        names.append(name)
