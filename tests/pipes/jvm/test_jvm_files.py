"""Unmodified Java programs, to which ``db://`` names are files, under ``entrepot pipe run``."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import entrepot
import pytest
from entrepot.errors import ObjectNotFound, StreamFailed
from entrepot_pipes.jvm import find_agent, jvm_environment, lacks_agent
from entrepot_pipes.pipe import open_export, open_import

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]  # the first one builds the agent

ROWS = 20_000
TOTAL = sum(number * 0.5 for number in range(ROWS))
TEXT = "id,name,price\n" + "".join(f'{n},"item {n}",{n * 0.5}\n' for n in range(ROWS))

RunJava = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def run_java(store: entrepot.Store, agent: Path, classes: Path) -> Iterator[RunJava]:
    """``run_java("write", way, file)``: start the program; it is killed at the end of the test, if it still runs."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str, program: str = "Files", environment: dict[str, str] | None = None) -> Any:
        java = ["java", "-XX:TieredStopAtLevel=1", "-cp", str(classes), program, *arguments]
        command = [sys.executable, "-m", "entrepot", "pipe", "run", "--", *java]
        started.append(
            subprocess.Popen(
                command,
                env={**os.environ, "ENTREPOT_PIPES_AGENT": str(agent), **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("way", ["writer", "stream", "print", "files", "channel", "end-of-input"])
def test_a_java_program_writes_a_table(run_java: RunJava, store: entrepot.Store, way: str) -> None:
    program = run_java("write", way, f"db://written-{way}")
    with open_import(f"db://written-{way}", store=store, timeout=120) as source:
        batches = list(source)
    output, errors = program.communicate(timeout=120)
    assert program.returncode == 0, output + errors
    assert sum(batch.num_rows for batch in batches) == ROWS
    assert sum(sum(batch["price"].to_pylist()) for batch in batches) == TOTAL
    assert batches[0]["name"][3].as_py() == "item 3"


@pytest.mark.parametrize("way", ["reader", "stream", "again", "scanner", "files", "lines", "twice"])
def test_a_java_program_reads_a_table(run_java: RunJava, store: entrepot.Store, way: str) -> None:
    program = run_java("read", way, f"db://read-{way}")
    with open_export(f"db://read-{way}", store=store, form="text", timeout=120) as export:
        export.write_text(TEXT.encode())
    output, errors = program.communicate(timeout=120)
    assert program.returncode == 0, output + errors
    assert [float(word) for word in output.split()] == [ROWS, TOTAL]


def test_between_two_java_programs_text_passes_as_it_is(run_java: RunJava) -> None:
    reading, writing = run_java("read", "reader", "db://both"), run_java("write", "writer", "db://both")
    for program in (writing, reading):
        output, errors = program.communicate(timeout=120)
        assert program.returncode == 0, output + errors
    assert [float(word) for word in output.split()] == [ROWS, TOTAL]


def test_a_java_program_that_ends_without_closing_fails_its_reader(run_java: RunJava, store: entrepot.Store) -> None:
    program = run_java("write", "halt", "db://halted")
    source = open_import("db://halted", store=store, timeout=120)
    with pytest.raises(StreamFailed):
        for _ in source:
            pass
    program.communicate(timeout=120)
    assert program.returncode == 7


@pytest.mark.parametrize(
    ("way", "reason"),
    [
        ("raise", "an exception left Files.write"),
        ("raise-files", "an exception left Files.write"),
        ("finally", "an exception left Files.write"),
        ("caught", "an exception left Files.write"),
        ("hook", "JVM was already ending"),
        ("collected", "the garbage collector did"),
    ],
)
def test_a_file_that_is_closed_out_of_order_fails_its_reader(
    run_java: RunJava, store: entrepot.Store, way: str, reason: str
) -> None:
    program = run_java("write", way, f"db://closed-{way}")
    source = open_import(f"db://closed-{way}", store=store, timeout=120)
    with pytest.raises(StreamFailed, match=reason):
        for _ in source:
            pass
    program.communicate(timeout=120)


def test_a_file_may_be_written_where_an_exception_is_handled(run_java: RunJava, store: entrepot.Store) -> None:
    program = run_java("write", "in-handler", "db://report")
    with open_import("db://report", store=store, timeout=120) as source:
        assert sum(batch.num_rows for batch in source) == ROWS
    program.communicate(timeout=120)
    assert program.returncode == 1


def test_a_broken_pipe_is_an_exception_and_no_end_of_file(run_java: RunJava, store: entrepot.Store) -> None:
    program = run_java("read", "reader", "db://broken")
    export = open_export("db://broken", store=store, form="text", timeout=120)
    export.write_text(TEXT.encode())
    export.abort("the source is gone")
    output, errors = program.communicate(timeout=120)
    assert program.returncode != 0
    assert "PipeException" in errors
    assert "the source is gone" in errors
    assert output == ""


def test_seeking_is_refused_with_the_reason(run_java: RunJava) -> None:
    program = run_java("read", "random", "db://random")
    output, errors = program.communicate(timeout=120)
    assert program.returncode != 0
    assert "db://random" in errors
    assert output == ""


@pytest.mark.parametrize("way", ["append", "append-files"])
def test_appending_is_refused_with_the_reason(run_java: RunJava, way: str) -> None:
    program = run_java("write", way, "db://appended")
    _, errors = program.communicate(timeout=120)
    assert program.returncode != 0
    assert "db://appended is a pipe, to which nothing can be appended" in errors


def test_ordinary_files_stay_what_they_are(run_java: RunJava, tmp_path: Path) -> None:
    file = tmp_path / "table.csv"
    for way in ("writer", "channel"):
        program = run_java("write", way, str(file))
        output, errors = program.communicate(timeout=120)
        assert program.returncode == 0, output + errors
        assert file.read_text() == TEXT
    for way in ("reader", "random"):
        program = run_java("read", way, str(file))
        output, errors = program.communicate(timeout=120)
        assert program.returncode == 0, output + errors
    assert output.split() == [str(len(TEXT))]


def test_the_agent_is_found_and_added_once(agent: Path, tmp_path: Path) -> None:
    environment = {"ENTREPOT_PIPES_AGENT": str(agent), "JAVA_TOOL_OPTIONS": "-Xmx1g"}
    changed = jvm_environment(environment)
    assert changed["JAVA_TOOL_OPTIONS"] == f"-Xmx1g -javaagent:{agent}"
    assert jvm_environment(changed) == changed
    assert not lacks_agent("/usr/bin/java", environment)
    with pytest.raises(ObjectNotFound, match=r"nothing\.jar"):
        find_agent({"ENTREPOT_PIPES_AGENT": str(tmp_path / "nothing.jar")})
    spaced = tmp_path / "a folder" / "agent.jar"
    spaced.parent.mkdir()
    spaced.touch()
    options = jvm_environment({"ENTREPOT_PIPES_AGENT": str(spaced)})["JAVA_TOOL_OPTIONS"]
    assert options == f'"-javaagent:{spaced}"'
