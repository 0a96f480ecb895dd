"""``entrepot pipe run``: start a program to which names such as ``db://orders`` are pipes."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from entrepot import Store, connect
from entrepot.errors import EntrepotError, InvalidArgument

from entrepot_pipes.broker.server import SOCKET_VARIABLE, Broker
from entrepot_pipes.fifo_guard import FifoGuard
from entrepot_pipes.fifos import ExportFifo, Fifo, ImportFifo
from entrepot_pipes.hooks.environment import hooked_environment
from entrepot_pipes.jvm import jvm_environment, lacks_agent
from entrepot_pipes.names import FOLDER_VARIABLE, RESERVED_PREFIX, PipeName, parse, parse_reserved, reserved_file
from entrepot_pipes.pipe import TIMEOUT_VARIABLE, VERIFY_VARIABLE, open_export, open_import
from entrepot_pipes.program_profile import program_dialect
from entrepot_pipes.text.dialect import Dialect

_FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_GRACE_SECONDS = 5.0  # from SIGTERM to SIGKILL
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126  # as shells say


def run_program(arguments: argparse.Namespace) -> int:
    """Run the program; return its exit code, or 1 if it ended well and a pipe did not."""
    words: list[str] = arguments.program[1:] if arguments.program[:1] == ["--"] else arguments.program
    if not words:
        raise InvalidArgument("give the program to run: entrepot pipe run -- PROGRAM [ARGUMENT ...]")
    if arguments.timeout is not None and not 0 <= arguments.timeout < float("inf"):
        raise InvalidArgument(f"--timeout must be a number of seconds, 0 or more, but got {arguments.timeout}")
    dialect = _dialect(arguments.dialect)
    hints: dict[str, Any] = {}
    if dialect is None and (arguments.profile is not None or arguments.exports or arguments.imports):
        dialect, hints = program_dialect(arguments.profile, words[0])
    if lacks_agent(words[0], os.environ):
        print(
            f"entrepot pipe run: {words[0]} gets no pipes: the agent for JVMs is not built; run 'make jvm' in a clone, "
            "and name the jar by ENTREPOT_PIPES_AGENT if this is another installation",
            file=sys.stderr,
        )
    with ExitStack() as stack:
        store = stack.enter_context(
            connect(arguments.address, session=arguments.session, scope=arguments.scope, cluster=False)
        )
        private = Path(tempfile.mkdtemp(prefix="entrepot-pipes-"))
        stack.callback(shutil.rmtree, private, ignore_errors=True)
        folder = Path(os.path.abspath(arguments.folder or private))
        folder.mkdir(parents=True, exist_ok=True)
        broker = stack.enter_context(Broker(private / "broker.sock", store, arguments.timeout, arguments.verify))
        environment = program_environment(os.environ, store, folder, broker.path, arguments.timeout)
        if arguments.verify is not None:
            environment[VERIFY_VARIABLE] = str(arguments.verify)
        guard = stack.enter_context(FifoGuard())
        program = _Program(words, guard)
        fifos: list[Fifo] = []
        try:
            options: dict[str, Any] = {
                "store": store,
                "form": "text",
                "dialect": dialect,
                "hints": hints,
                "timeout": arguments.timeout,
                "verify": arguments.verify,
                "program": program.name,
            }
            for name in arguments.exports:
                for pipe, path in _fifo_paths(name, folder, words):
                    fifos.append(ExportFifo(path, open_export(pipe, **options), program.source_broke))
            for name in arguments.imports:
                for pipe, path in _fifo_paths(name, folder, words):
                    source = open_import(pipe, **options)
                    fifos.append(ImportFifo(path, source, program.source_broke, guard, pipe.early_end))
            code = program.run(environment)
        except BaseException as error:
            _finish(fifos, f"'entrepot pipe run' failed: {error}")
            raise
        errors = program.errors + _finish(fifos, "" if code == 0 else f"{program.name} {_end_phrase(code)}")
    for message in dict.fromkeys(str(error) for error in errors):
        print(f"entrepot pipe run: {message}", file=sys.stderr)
    return code or int(bool(errors))


def program_environment(
    environment: Mapping[str, str], store: Store, folder: Path, socket: Path, timeout: float | None
) -> dict[str, str]:
    """The environment in which a program, and its children, find the store, the broker and the reserved folder."""
    changed = {
        **environment,
        "ENTREPOT_ADDRESS": store.address,
        "ENTREPOT_SCOPE": store.scope,
        "ENTREPOT_SESSION": store.session_name,
        FOLDER_VARIABLE: os.fspath(folder),
        SOCKET_VARIABLE: os.fspath(socket),
    }
    if not store.session_name:
        del changed["ENTREPOT_SESSION"]
    if timeout is not None:
        changed[TIMEOUT_VARIABLE] = str(timeout)
    return jvm_environment(hooked_environment(changed))


class _Program:
    """The program that runs.

    States::

        not started ──run──▶ running ──it ends──▶ ended
                                └──source_broke──▶ told to end (SIGTERM) ──after five seconds──▶ killed
    """

    def __init__(self, words: list[str], guard: FifoGuard) -> None:
        self.name = os.path.basename(words[0])
        self.errors: list[Exception] = []  # appended to by the threads of FIFOs; read when these have ended
        self._guard = guard
        self._words = words  # in which names become paths, until it is started
        # A group of its own, so that all of it can be ended; but on a terminal, it has to stay in the foreground.
        self._own_group = not sys.stdin.isatty()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None  # guarded by _lock
        self._early: list[int] = []  # signals that came before it was started; used by the main thread
        self._ended = threading.Event()

    def run(self, environment: Mapping[str, str]) -> int:
        """Run it; return its exit code as shells do."""
        with self._signals_forwarded():
            try:
                with self._lock:
                    process = self._process = subprocess.Popen(
                        self._words, env=dict(environment), start_new_session=self._own_group
                    )
                    broke = bool(self.errors)
                    self._guard.watch(process.pid, group=self._own_group)
            except OSError as error:
                print(f"entrepot pipe run: cannot start {self._words[0]!r}: {error.strerror}", file=sys.stderr)
                return _NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE
            for number in [*self._early, *([signal.SIGKILL] if broke else [])]:
                self._signal(number)
            code = process.wait()
            self._ended.set()
        if self.errors and self._own_group:
            with suppress(ProcessLookupError):  # nobody is left of its group, as should be
                os.killpg(process.pid, signal.SIGKILL)
        return 128 - code if code < 0 else code

    def source_broke(self, error: Exception) -> None:
        """End the program, because what it reads or writes is not everything. Called by the thread of a FIFO."""
        with self._lock:
            self.errors.append(error)
            if self._process is None:
                return  # run() sees it
        self._signal(signal.SIGTERM)
        if not self._ended.wait(_GRACE_SECONDS):
            self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        process = self._process
        if process is None:
            self._early.append(number)
            return
        if self._ended.is_set():
            return
        with suppress(ProcessLookupError):
            if self._own_group:
                os.killpg(process.pid, number)
            else:
                process.send_signal(number)

    @contextmanager
    def _signals_forwarded(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield  # only the main thread gets signals
            return
        # A terminal sends these two to the program itself.
        own = () if self._own_group else (signal.SIGINT, signal.SIGQUIT)
        saved = {}
        for number in _FORWARDED:
            if signal.getsignal(number) != signal.SIG_IGN:  # as under nohup
                # Not ignored, because the program would inherit that.
                saved[number] = signal.signal(
                    number, (lambda *_: None) if number in own else lambda number, _: self._signal(number)
                )
        try:
            yield
        finally:
            for number, handler in saved.items():
                signal.signal(number, handler)


def _fifo_paths(name: str, folder: Path, words: list[str]) -> list[tuple[PipeName, Path]]:
    """The FIFOs of one name, one for each worker; the name becomes the path in the program's words."""
    if name.startswith(RESERVED_PREFIX):
        pipe, path = parse_reserved(name), folder / os.path.basename(name)
    else:
        pipe = parse(name)
        path = reserved_file(pipe, folder)
    if pipe.workers > 1:
        return [(pipe, path.with_name(f"{path.name}.{worker}")) for worker in range(pipe.workers)]
    words[:] = [word.replace(name, os.fspath(path)) if name != path.name else word for word in words]
    return [(pipe, path)]


def _finish(fifos: list[Fifo], failure: str) -> list[Exception]:
    """Pass on how the program ended; return what went wrong."""
    errors: list[Exception] = []
    for fifo in fifos:
        try:
            fifo.finish(failure)
        except EntrepotError as error:
            if not failure:
                errors.append(error)
        fifo.path.unlink(missing_ok=True)
    return errors


def _end_phrase(code: int) -> str:
    if code > 128:
        with suppress(ValueError):
            return f"was ended by {signal.Signals(code - 128).name}"
    return f"ended with exit code {code}"


def _dialect(text: str | None) -> Dialect | None:
    if text is None:
        return None
    try:
        values: Any = json.loads(text)
    except ValueError as error:
        raise InvalidArgument(f"--dialect must be a JSON object, but {text!r} is not: {error}") from error
    if not isinstance(values, dict):
        raise InvalidArgument(f"--dialect must be a JSON object, but got {text!r}")
    return Dialect.from_dict(values)
