"""The engines of ``benchmarks.commands.pipes``: programs that export a table and import one."""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness.machine import ROOT

PROGRAMS = Path(__file__).with_name("programs")
SPARK_PYTHON = ROOT / ".venv-spark" / "bin" / "python"
AGENT = ROOT / "io_managers/entrepot_pipes/jars/entrepot-pipes-agent.jar"
WAIT_SECONDS = 600.0
COLUMNS = "id bigint, i1 bigint, d1 double precision, i2 bigint, d2 double precision, i3 bigint, d3 double precision"
_PIPE_RUN = (sys.executable, "-m", "entrepot.cli", "pipe", "run", "--timeout", "30")


class EngineFailed(Exception):
    """An engine could not export or import; the message is its own."""


@dataclass
class Setting:
    """What all engines need."""

    folder: Path
    source: Path  # the table as CSV
    environment: Mapping[str, str]


class Program:
    """A program that obeys lines, under ``entrepot pipe run``. For one thread at a time."""

    def __init__(self, name: str, words: list[str], setting: Setting, pipes: tuple[str, ...] = ()) -> None:
        self._log = setting.folder / f"{name}.log"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*_PIPE_RUN, *pipes, "--", *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**setting.environment, "PYTHONPATH": str(ROOT)},
                cwd=setting.folder,
            )
        self._pending = b""
        self._expect("READY")

    def send(self, line: str) -> None:
        """Let it begin."""
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()

    def result(self) -> list[int]:
        """What it printed when it was done."""
        return [int(word) for word in self._expect("DONE")]

    def end(self) -> None:
        """Wait for its end; kill it if that takes long."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _expect(self, word: str) -> list[str]:
        """The words after this one; other lines are passed over."""
        output: Any = self._process.stdout
        end = time.monotonic() + WAIT_SECONDS
        while True:
            line, newline, rest = self._pending.partition(b"\n")
            if newline:
                self._pending = rest
                words = line.decode().split(" ")
                if words[0] == word:
                    return words[1:]
                if words[0] == "FAILED":
                    raise EngineFailed(line.decode())
                continue
            if not select.select([output], [], [], max(0.0, end - time.monotonic()))[0]:
                raise EngineFailed(f"no answer within {WAIT_SECONDS:g} s; see {self._log}")
            data = os.read(output.fileno(), 1 << 16)
            if not data:
                self._process.wait()
                raise EngineFailed(f"the program ended: {self._log.read_text(errors='replace')[-2000:]}")
            self._pending += data


class Engine:
    """An engine that runs as long as the benchmark, and reads commands."""

    header = True  # whether what it exports has one

    def __init__(self, name: str, words: list[str], setting: Setting) -> None:
        self.name = name
        self.setting = setting
        self._program = Program(name, [*words, str(setting.source)], setting)

    def prepare(self, action: str, target: str, header: bool) -> None:
        """Everything that comes before the measurement."""
        self._next = f"{action} {target} {int(header)}"

    def begin(self) -> None:
        """Export or import what was prepared."""
        self._program.send(self._next)

    def finish(self) -> list[int]:
        """Wait for it; an import's rows and sum."""
        return self._program.result()

    def file(self, path: Path) -> Path:
        """The file that it wrote."""
        return path

    def close(self) -> None:
        """End the program."""
        self._program.end()


class SparkEngine(Engine):
    """Spark writes folders."""

    def file(self, path: Path) -> Path:
        """The one file in the folder that it wrote."""
        (part,) = path.glob("part-*")
        return part


class DerbyEngine(Engine):
    """Derby writes no headers."""

    header = False


class CommandEngine:
    """An engine whose client runs for each transfer; names of pipes are FIFOs of ``entrepot pipe run``."""

    header = True

    def __init__(self, name: str, setting: Setting) -> None:
        self.name = name
        self.setting = setting
        self._program: Program | None = None

    def command(self, action: str, target: str, header: bool) -> str:
        """Return a line for the shell."""
        raise NotImplementedError

    def reset(self) -> None:
        """Empty the table that is imported into."""
        raise NotImplementedError

    def count(self) -> list[int]:
        """Rows and sum of that table."""
        raise NotImplementedError

    def prepare(self, action: str, target: str, header: bool) -> None:
        """Start the shell, which waits; with the FIFO, if the target is a pipe."""
        self._imports = action == "import"
        if self._imports:
            self.reset()
        script = f"echo READY; read -r line; {self.command(action, target, header)} </dev/null && echo DONE"
        pipes = (f"--{action}", target) if target.startswith("db:") else ()
        self._program = Program(self.name, ["sh", "-c", script], self.setting, pipes)

    def begin(self) -> None:
        """Start the client."""
        assert self._program is not None
        self._program.send("go")

    def finish(self) -> list[int]:
        """Wait for it; an import's rows and sum."""
        assert self._program is not None
        self._program.result()
        return self.count() if self._imports else []

    def file(self, path: Path) -> Path:
        """The file that it wrote."""
        return path

    def close(self) -> None:
        """End the program of the last transfer."""
        if self._program is not None:
            self._program.end()
            self._program = None


class SqliteEngine(CommandEngine):
    """The program sqlite3."""

    def __init__(self, setting: Setting) -> None:
        super().__init__("SQLite", setting)
        self._source, self._target = setting.folder / "source.sqlite", setting.folder / "target.sqlite"
        self._shell(self._source, f"CREATE TABLE t ({COLUMNS})", f".import --csv --skip 1 {setting.source} t")

    def command(self, action: str, target: str, header: bool) -> str:
        if action == "export":
            options = '-csv -header -newline "\n"'
            return f"sqlite3 {options} {self._source} '.once {target}' 'SELECT * FROM t'"
        skip = "--skip 1 " if header else ""
        return f"sqlite3 {self._target} '.import --csv {skip}{target} t'"

    def reset(self) -> None:
        self._target.unlink(missing_ok=True)
        self._shell(self._target, f"CREATE TABLE t ({COLUMNS})")

    def count(self) -> list[int]:
        return [int(word) for word in self._shell(self._target, "SELECT count(*), sum(id) FROM t").split("|")]

    @staticmethod
    def _shell(database: Path, *commands: str) -> str:
        run = subprocess.run(["sqlite3", str(database), *commands], check=True, capture_output=True, text=True)
        return run.stdout


class PostgresEngine(CommandEngine):
    """PostgreSQL, by psql's \\copy."""

    def __init__(self, setting: Setting) -> None:
        super().__init__("PostgreSQL", setting)
        for table in ("source", "target"):
            self._psql(f"CREATE UNLOGGED TABLE {table} ({COLUMNS})")
        self._psql(f"\\copy source FROM '{setting.source}' WITH (FORMAT csv, HEADER)")

    def command(self, action: str, target: str, header: bool) -> str:
        what = f"source TO '{target}'" if action == "export" else f"target FROM '{target}'"
        return f'psql -q -X -v ON_ERROR_STOP=1 -c "\\\\copy {what} WITH (FORMAT csv, HEADER {str(header).lower()})"'

    def reset(self) -> None:
        self._psql("TRUNCATE target")

    def count(self) -> list[int]:
        return [int(word) for word in self._psql("SELECT count(*), sum(id) FROM target").split("|")]

    def _psql(self, command: str) -> str:
        words = ["psql", "-q", "-X", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", command]
        run = subprocess.run(words, check=True, capture_output=True, text=True, env=dict(self.setting.environment))
        return run.stdout


@contextmanager
def postgres_environment() -> Iterator[dict[str, str]]:
    """A server of its own; yields the variables by which psql finds it."""
    sys.path.append(str(ROOT / "tests" / "databases"))
    import importlib

    postgres: Any = importlib.import_module("postgres_server")
    with postgres.run_server() as server:
        server.create("benchmark")
        url = server.url("benchmark")
        yield {"PGHOST": url.partition("host=")[2], "PGUSER": postgres.USER, "PGDATABASE": "benchmark"}


def absent_reason(name: str) -> str | None:
    """Why an engine is not on this machine; None: it is."""
    if name == "SQLite" and not shutil.which("sqlite3"):
        return "there is no program sqlite3"
    if name == "PostgreSQL" and not shutil.which("psql"):
        return "there is no program psql"
    if name in ("Spark", "Derby"):
        if not shutil.which("javac"):
            return "there is no JDK"
        if not SPARK_PYTHON.exists() or not AGENT.exists():
            return "run 'make jvm-engines'"
    return None


def start_engine(name: str, setting: Setting) -> Engine | CommandEngine:
    """Start one, with the table loaded."""
    if name == "SQLite":
        return SqliteEngine(setting)
    if name == "PostgreSQL":
        return PostgresEngine(setting)
    if name == "Spark":
        return SparkEngine(name, [str(SPARK_PYTHON), "-m", "benchmarks.pipes.programs.spark_engine"], setting)
    if name == "Derby":
        (jar,) = SPARK_PYTHON.parents[1].glob("lib/python*/site-packages/pyspark/jars/derby-*.jar")
        classes = setting.folder / "classes"
        subprocess.run(["javac", "-d", str(classes), str(PROGRAMS / "DerbyEngine.java")], check=True)
        settings = [f"-Dderby.stream.error.file={os.devnull}", "-Dderby.system.durability=test"]  # no fsync
        java = ["java", *settings, "-cp", f"{classes}:{jar}", "DerbyEngine"]
        return DerbyEngine(name, java, setting)
    return Engine(name, [sys.executable, "-m", f"benchmarks.pipes.programs.{name.lower()}_engine"], setting)
