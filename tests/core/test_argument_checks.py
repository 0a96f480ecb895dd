"""Argument checks of the public API: every call rejects wrong arguments with an Entrepot error, and ``connect`` names
what is missing."""

from __future__ import annotations

import datetime as dt
import inspect
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from textwrap import dedent
from typing import Any

import entrepot
import numpy as np
import pytest
from entrepot._daemon import launcher, settings
from entrepot.errors import AccessDenied, EntrepotError, InvalidArgument, StoreUnavailable

WRONG_VALUES: dict[str, Any] = {
    "none": None,
    "true": True,
    "zero": 0,
    "negative": -1,
    "five": 5,
    "beyond 64 bits": 1 << 70,
    "below 64 bits": -(1 << 70),
    "beyond floats": 10**400,
    "fraction": 3.5,
    "nan": float("nan"),
    "infinite": float("inf"),
    "empty text": "",
    "text": "x",
    "half a surrogate pair": "\ud800",
    "zero character": "a\0b",
    "long text": "x" * 100_000,
    "no bytes": b"",
    "bytes": b"x" * 20,
    "list": [],
    "dictionary": {},
    "list of nothing": [None],
    "object": object(),
    "function": len,
    "numpy integer": np.int64(3),
    "numpy nan": np.float64("nan"),
    "array": np.array([1, 2]),
    "complex": 1j,
    "type": type,
    "ellipsis": ...,
    "duration": dt.timedelta(1),
}
# Valid arguments for the parameters that are not under test.
VALID_ARGUMENTS: dict[str, Any] = {
    "value": 1,
    "name": "name",
    "values": [1],
    "key": "key",
    "nbytes": 10,
    "pattern": "*",
    "size": 10,
}
TEXT_PARAMETERS = {"url", "session", "consumer", "what", "producer"}
LONG_TIMEOUTS = {None, True, 5, 1 << 70, 10**400, 3.5, float("inf"), 3}  # as a timeout, these would wait too long
CALLS = [
    (name, parameter)
    for name, method in inspect.getmembers(entrepot.Store, callable)
    if not name.startswith("_") and name != "close"
    for parameter in list(inspect.signature(method).parameters)[1:]
]


def would_block(parameter: str, wrong: Any) -> bool:
    return parameter == "timeout" and isinstance(wrong, (int, float, type(None))) and wrong in LONG_TIMEOUTS


def call(store: entrepot.Store, name: str, parameter: str, wrong: Any) -> None:
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    for other, kind in list(inspect.signature(getattr(entrepot.Store, name)).parameters.items())[1:]:
        if other == parameter:
            argument = wrong
        elif other == "timeout":
            argument = 0  # by default, some would wait for a value for minutes, or for ever
        elif kind.default is inspect.Parameter.empty and kind.kind is not inspect.Parameter.VAR_POSITIONAL:
            argument = VALID_ARGUMENTS.get(other, "x" if other in TEXT_PARAMETERS else store.derive("there"))
        else:
            continue
        if kind.kind is inspect.Parameter.VAR_POSITIONAL:
            positional.append(argument)
        else:
            keywords[other] = argument
    outcome = getattr(store, name)(*positional, **keywords)
    if isinstance(outcome, entrepot.Store):
        outcome.close()
    if isinstance(outcome, entrepot.Reservation):
        outcome.release()


def connect_and_close(arguments: dict[str, Any]) -> None:
    entrepot.connect(**arguments).close()


def outcome_is_fine(work: Callable[[], Any], *, reads_file: bool = False) -> bool:
    """Return whether it worked, or failed with an error about the argument instead of our internals.

    With ``reads_file``, that may be what the operating system says of a path.
    """
    try:
        work()
    except EntrepotError:
        return True
    except OSError:
        return reads_file
    except (TypeError, ValueError) as error:
        return not isinstance(error, UnicodeError) and "incompatible function arguments" not in str(error)
    return True


@pytest.mark.parametrize(("name", "parameter"), CALLS, ids=[f"{name}-{parameter}" for name, parameter in CALLS])
def test_what_is_wrong_is_refused_with_a_typed_error(
    module_daemon: Any, name: str, parameter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a relative path is a place to save to
    store = entrepot.connect(module_daemon.address, scope="wrong", session=f"{name}-{parameter}")
    store.put(1, id=store.derive("there"), replace=True)
    for description, wrong in WRONG_VALUES.items():
        if would_block(parameter, wrong):
            continue
        reads_file = name.startswith("read_")
        assert outcome_is_fine(partial(call, store, name, parameter, wrong), reads_file=reads_file), description
    assert store.get(store.put([parameter])) == [parameter], "the store goes on"
    store.close()


@pytest.fixture(scope="module")
def module_store(module_daemon: Any) -> Iterator[entrepot.Store]:
    with entrepot.connect(module_daemon.address, scope="tests") as connected:
        yield connected


@pytest.mark.parametrize("argument", ["address", "session", "scope", "durable"])
def test_connect_refuses_what_is_wrong(module_daemon: Any, argument: str) -> None:
    for description, wrong in WRONG_VALUES.items():
        arguments = {"address": module_daemon.address, argument: wrong}
        if argument == "address" and wrong is None:
            continue  # the private store
        assert outcome_is_fine(partial(connect_and_close, arguments)), description


def test_the_errors_name_the_value(module_store: entrepot.Store) -> None:
    store: Any = module_store
    refusals: tuple[tuple[Callable[[], Any], str], ...] = (
        (lambda: store.create(1 << 70), "integer from 0 to .*, but got 1180591620717411303424"),
        (lambda: store.get(store.derive("there"), copy=[]), "copy must be one of 'never', .*, but got \\[\\]"),
        (lambda: store.list(5), "the pattern of a list must be a string, but got 5"),
        (lambda: store.derive(5), "derived from strings, but got 5 of type int"),
        (lambda: store.set_name("\ud800", store.derive("there")), "a name must be valid UTF-8.*surrogate"),
        (lambda: store.session("\udcff"), "a session's name must be valid UTF-8"),
        (lambda: store.session("a\0b"), "a session's name must be text of at most 240 bytes without NUL"),
        (lambda: store.remove_session("a\0b"), "a session's name must be text of at most 240 bytes without NUL"),
        (lambda: store.remove_session("x" * 241), "a session's name must be text of at most 240 bytes"),
        (lambda: store.list(session="a\0b"), "a session's name must be text of at most 240 bytes without NUL"),
        (lambda: store.put(1, replace=5), "replace must be True or False, but got 5"),
    )
    for refused_call, message in refusals:
        with pytest.raises(InvalidArgument, match=message):
            refused_call()


def test_numpys_numbers_are_numbers(module_store: entrepot.Store) -> None:
    store: Any = module_store
    with store.create(np.int64(100)) as blob:
        blob.view[:] = b"x" * 100
    assert bytes(store.get(blob.id, timeout=np.float32(1))) == b"x" * 100
    assert store.delete(blob.id, members=np.bool_(True))
    oid = store.put(1, consumers=np.uint8(2))
    store.hint(oid, priority=np.int16(-3), recompute_seconds=np.float32(0.5))
    store.session("numbers", ttl=np.int32(60), limit_bytes=np.int64(1 << 20)).close()


# --- connect() with something missing

CONNECT_CODE = "with entrepot.connect() as s: print(s.get(s.put([1, 2])), s.status()['keeper_pid'])"
# Imports everything that would otherwise be loaded lazily.
IMPORT_CODE = (
    "import entrepot\nfrom entrepot import codec\nfrom entrepot._daemon import launcher\n"
    "entrepot.connect, codec.encode_value([1])"
)
UNKNOWN_UID = 2_000_123  # as in a pod: a user without a passwd entry


class IsolatedEnvironment:
    """Environment without a running store; a store started in it is stopped."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {
            key: value
            for key, value in os.environ.items()
            if key != "HOME" and not key.startswith(("XDG_", "ENTREPOT_", "TMP"))
        }
        # Accessible to another user too.
        program = shutil.copy2(launcher.daemon_binary(), folder / "entrepotd")
        self.environment |= {
            "TMPDIR": str(folder),
            "ENTREPOT_PRIVATE_SIZE": "64MiB",
            "ENTREPOT_DAEMON_BINARY": str(program),
        }
        self.uid: int | None = None
        self.limits: dict[int, int] = {}

    def connect(self) -> subprocess.CompletedProcess[str]:
        """Run ``connect()`` and a put in a separate process, which loads all modules before limits apply."""
        code = f"import os, resource\n{IMPORT_CODE}\n"
        for kind, limit in self.limits.items():
            code += f"resource.setrlimit({kind}, ({limit}, {limit}))\n"
        if self.uid is not None:
            code += f"os.setgroups([]); os.setgid({self.uid}); os.setuid({self.uid})\n"
        done = subprocess.run(
            [sys.executable, "-c", code + CONNECT_CODE],
            env=self.environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if done.returncode == 0:
            assert launcher.stop(int(done.stdout.split()[-1]))
        return done


@pytest.fixture
def place() -> Iterator[IsolatedEnvironment]:
    with tempfile.TemporaryDirectory(prefix="ep-", ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o777)
        yield IsolatedEnvironment(Path(folder))


def refusal(done: subprocess.CompletedProcess[str], kind: type[EntrepotError]) -> str:
    """Return the message of the error of this kind that ended the process."""
    assert done.returncode == 1, done
    last = next(line for line in done.stderr.splitlines() if line.startswith("entrepot.errors."))
    assert last.startswith(f"entrepot.errors.{kind.__name__}: "), done.stderr
    return done.stderr[done.stderr.rindex(last) :]


@pytest.mark.parametrize("home", ["missing", "not there", "unwritable", "foreign"])
def test_a_home_that_is_no_use(place: IsolatedEnvironment, home: str) -> None:
    if os.getuid() == 0:
        place.uid = UNKNOWN_UID
    elif home in ("missing", "foreign"):
        pytest.skip("only root can become a user without an entry in passwd")
    home_folder = place.folder / "home"
    if home == "not there":
        place.environment["HOME"] = "/nonexistent/home"
    elif home == "unwritable":
        home_folder.mkdir(mode=0o555)
        place.environment["HOME"] = str(home_folder)
    elif home == "foreign":
        home_folder.mkdir(mode=0o700)
        place.environment["HOME"] = str(home_folder)
    done = place.connect()
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("[1, 2]")
    logs = list(place.folder.rglob("entrepotd.log"))
    assert len(logs) == 1, "the log is in the run-time folder"
    assert not (place.folder / "~").exists()


def test_a_runtime_folder_that_cannot_be_made(place: IsolatedEnvironment) -> None:
    place.environment["XDG_RUNTIME_DIR"] = "/proc/nowhere"
    message = refusal(place.connect(), StoreUnavailable)
    assert "XDG_RUNTIME_DIR is /proc/nowhere" in message
    assert "ENTREPOT_ADDRESS" in message


def test_a_temporary_directory_is_taken_as_it_is(place: IsolatedEnvironment) -> None:
    """No store elsewhere takes the place of the one in a directory that is full or missing."""
    missing = place.folder / "missing"
    place.environment["TMPDIR"] = str(missing)
    message = refusal(place.connect(), StoreUnavailable)
    assert f"TMPDIR is {missing}, but no folder can be created there" in message
    assert not missing.exists()


def test_a_temporary_directory_without_room_leads_to_the_same_store(place: IsolatedEnvironment) -> None:
    """Python's own choice is another directory then."""
    place.environment["TMPDIR"] = str(place.folder)
    code = """
        import resource, tempfile
        from entrepot._daemon.settings import private_address
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # no file can have a byte, as on a full disk
        try:
            chosen = tempfile.gettempdir()
        except FileNotFoundError:
            chosen = "none"
        print(chosen, private_address())
    """
    done = subprocess.run(
        [sys.executable, "-c", dedent(code)],
        env=place.environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    chosen, address = done.stdout.split()
    assert chosen != str(place.folder)
    assert address == f"unix://{place.folder}/entrepot-{os.getuid()}/store.sock"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_a_runtime_folder_of_somebody_else(place: IsolatedEnvironment) -> None:
    runtime_folder = place.folder / "run"
    runtime_folder.mkdir(mode=0o755)
    place.environment["XDG_RUNTIME_DIR"] = str(runtime_folder)
    place.uid = UNKNOWN_UID
    assert f"set XDG_RUNTIME_DIR to a folder of user {UNKNOWN_UID}" in refusal(place.connect(), AccessDenied)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("owner", [0, UNKNOWN_UID], ids=["of root", "used by root"])
def test_a_private_runtime_folder_that_sudo_has_passed_on(place: IsolatedEnvironment, owner: int) -> None:
    user = UNKNOWN_UID - owner
    runtime_folder = place.folder / "run"
    runtime_folder.mkdir(mode=0o700)
    os.chown(runtime_folder, owner, owner)
    place.folder.chmod(0o1777)
    code = f"""
        import os
        from entrepot._daemon.settings import private_address
        os.setuid({user})
        print(private_address())
    """
    done = subprocess.run(
        [sys.executable, "-c", dedent(code)],
        env=place.environment | {"XDG_RUNTIME_DIR": str(runtime_folder)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.strip() == f"unix://{place.folder}/entrepot-{user}/store.sock"
    assert not list(runtime_folder.iterdir())


def test_a_runtime_folder_too_long_for_a_socket(place: IsolatedEnvironment) -> None:
    place.environment["XDG_RUNTIME_DIR"] = str(place.folder / ("long" * 30))
    message = refusal(place.connect(), InvalidArgument)
    assert "a socket's path can have at most 107 bytes" in message
    assert "ENTREPOT_ADDRESS" in message
    assert "XDG_RUNTIME_DIR" in message


@pytest.mark.parametrize("size", ["3G", "3GB", "3 GiB", "1.5GiB", "-1", "lots", "3gib", "٣GiB", "0", "00GiB"])
def test_a_private_size_that_is_none(size: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENTREPOT_PRIVATE_SIZE", size)
    with pytest.raises(InvalidArgument, match=f"ENTREPOT_PRIVATE_SIZE .*GiB.*but got {size!r}"):
        settings.resolve()
    monkeypatch.setenv("ENTREPOT_PRIVATE_SIZE", "3GiB")
    assert settings.resolve().private_size == "3GiB"


@pytest.mark.parametrize("limit", [5, 8, 11, 24])
def test_few_descriptors_for_a_private_store(place: IsolatedEnvironment, limit: int) -> None:
    place.limits = {resource.RLIMIT_NOFILE: limit}
    message = refusal(place.connect(), StoreUnavailable)
    assert "Too many open files" in message
    assert "ulimit -n" in message


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become a user without processes")
@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5])
def test_few_processes_for_a_private_store(
    place: IsolatedEnvironment, wait_until: Callable[..., None], limit: int
) -> None:
    place.uid = 34_700 + limit  # a user without any process
    place.environment |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    place.limits = {resource.RLIMIT_NPROC: limit}
    assert "ulimit -u" in refusal(place.connect(), StoreUnavailable)

    def is_over() -> bool:
        return all(not launcher.is_running(pid) for pid in pids_of(place.uid))

    wait_until(is_over, "the last process of the failed start to end", 10)


def pids_of(uid: int | None) -> list[int]:
    """Return the processes of a user."""
    pids: list[int] = []
    for name in os.listdir("/proc"):
        with suppress(OSError):
            if name.isdecimal() and os.stat(f"/proc/{name}").st_uid == uid:
                pids.append(int(name))
    return pids


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user, for whom the mode counts")
def test_a_runtime_folder_that_is_read_only(place: IsolatedEnvironment) -> None:
    place.uid = UNKNOWN_UID
    runtime_folder = place.folder / "run" / "entrepot"
    runtime_folder.mkdir(parents=True)
    os.chown(runtime_folder, UNKNOWN_UID, UNKNOWN_UID)
    runtime_folder.chmod(0o500)
    place.environment["XDG_RUNTIME_DIR"] = str(runtime_folder.parent)
    assert "Permission denied" in refusal(place.connect(), AccessDenied)


def run_code(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a process of its own, without a connection."""
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)


@pytest.mark.parametrize("more", [0, 16])
def test_few_descriptors_for_a_client(
    python: Callable[..., subprocess.CompletedProcess[str]], daemon: Any, more: int
) -> None:
    done = run_code(
        f"import os, resource, sys\nimport numpy as np\n{IMPORT_CODE}\ncodec.encode_value(np.arange(2))\n"
        f"limit = len(os.listdir('/proc/self/fd')) - 1 + {more}\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))\n"
        "try:\n"
        "    store = entrepot.connect(sys.argv[1])\n"
        "    print(store.get(store.put(np.arange(100_000)))[-1])\n"
        "except entrepot.EntrepotError as error:\n"
        "    print(type(error).__name__, error)\n",
        daemon.address,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(("99999\n", "StoreUnavailable ", "AccessDenied ")), done.stdout
    assert python("print(store.get(store.put(1)))").stdout == "1\n", "the store goes on"


NO_DESCRIPTORS = r"process \d+ \([^)]+\) has used all of its file descriptors, limit {limit} \(ulimit -n\)"


def test_each_number_of_descriptors_that_a_client_may_lack(daemon: Any) -> None:
    """Connecting, leasing and mapping: each error names what is missing, is not retried, and goes away with the
    shortage."""
    code = """
        soft_limit, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        def limit(n):
            resource.setrlimit(resource.RLIMIT_NOFILE, (n, hard_limit))
        other = entrepot.connect(sys.argv[1])
        oids = [other.put(np.arange(100_000) + n) for n in range(2)]
        print(other.get(oids[1])[0])  # whatever is imported later is there
        other.close()
        for more in range(1, 40):
            open_count = len(os.listdir("/proc/self/fd")) - 1
            store = None
            limit(open_count + more)
            try:
                store = entrepot.connect(sys.argv[1])
                store.put(np.arange(100_000))
                store.get(oids[0])
                print("enough")
                break
            except entrepot.EntrepotError as error:
                print(type(error).__name__, open_count + more, error)
            finally:
                limit(soft_limit)
            if store is not None:  # it connected: the same client goes on
                assert store.get(oids[0])[-1] == 99_999
                store.put(np.arange(100_000))
                store.close()
            gc.collect()
    """
    began = time.monotonic()
    done = run_code(f"import gc, os, resource, sys\n{IMPORT_CODE}\nimport numpy as np\n{dedent(code)}", daemon.address)
    assert done.returncode == 0, done.stderr
    first, *refusals, last = done.stdout.splitlines()
    assert (first, last) == ("1", "enough")
    assert len(refusals) >= 7, refusals  # a socket, and the descriptors of a Hello
    for line in refusals:
        kind, limit, message = line.split(" ", 2)
        assert kind == "AccessDenied", line
        assert re.search(NO_DESCRIPTORS.format(limit=limit), message), line
        assert "--size" not in message, line
    assert time.monotonic() - began < 60


@contextmanager
def exhausted_descriptors() -> Iterator[int]:
    """Use up all descriptors of this process; yield its limit."""
    soft_limit, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = max(int(name) for name in os.listdir("/proc/self/fd")) + 2
    descriptors: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard_limit))
    try:
        with suppress(OSError):
            while True:
                descriptors.append(os.dup(0))
        yield limit
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft_limit, hard_limit))
        for descriptor in descriptors:
            os.close(descriptor)


def test_a_client_that_runs_out_of_descriptors_goes_on(
    daemon: Any, python: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    oid = python("import numpy as np\nprint(store.put(np.arange(100_000)))").stdout.strip()
    with entrepot.connect(daemon.address, scope="tests") as store:
        small = store.put(np.arange(10))
        assert store.get(small)[-1] == 9
        instance, clients = store.instance_id, store.status()["clients"]
        for _ in range(2):
            with exhausted_descriptors() as limit:
                for work in (lambda: store.get(oid), lambda: store.put(np.arange(100_000))):
                    with pytest.raises(AccessDenied, match=NO_DESCRIPTORS.format(limit=limit)) as caught:
                        work()
                    assert "--size" not in str(caught.value)
                assert store.get(small)[-1] == 9, "what needs none goes on, by the same connection"
                assert [client["client"] for client in store.status()["clients"]] == [
                    former_client["client"] for former_client in clients
                ]
        assert store.status()["leased_bytes"] == 0, "what could not be mapped is given back"
        assert store.get(oid)[-1] == 99_999
        assert store.get(store.put(np.arange(100_000)))[-1] == 99_999
        assert store.instance_id == instance


def test_a_client_without_descriptors_comes_back_when_it_has_some(daemon: Any) -> None:
    with entrepot.connect(daemon.address, scope="tests") as store:
        oid = store.put(np.arange(100_000))
        assert store.get(oid)[-1] == 99_999
        pid = store.status()["pid"]
        with exhausted_descriptors() as limit:
            os.kill(pid, signal.SIGKILL)
            began = time.monotonic()
            with pytest.raises(AccessDenied, match=NO_DESCRIPTORS.format(limit=limit)):
                store.status()
            assert time.monotonic() - began < 20, "it was tried again and again"
        assert store.status()["pid"] != pid
        assert store.get(oid)[-1] == 99_999
        assert store.get(store.put([1])) == [1]


def test_few_descriptors_for_the_daemon(daemon: Any, wait_until: Callable[..., None]) -> None:
    with entrepot.connect(daemon.address, scope="tests") as store:
        pid = store.status()["pid"]
        open_count = len(os.listdir(f"/proc/{pid}/fd"))
        _, hard_limit = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (open_count + 2, hard_limit))
        oid = store.put(np.arange(1000))
        code = (
            "import sys, entrepot\ntry:\n    entrepot.connect(sys.argv[1])\n"
            "except entrepot.EntrepotError as error:\n    print(error)\n"
        )
        done = run_code(code, daemon.address)
        assert done.returncode == 0, done.stderr
        assert re.search(NO_DESCRIPTORS.format(limit=open_count + 2), done.stdout), done.stdout
        code = code.replace(
            "entrepot\n", "entrepot\nentrepot.connect\nentrepot._store.connection.CONNECT_SECONDS = 1\n", 1
        )

        def refused_at_accept() -> bool:
            # The daemon closes descriptors meanwhile: those of the client before, and of segments that become warm.
            open_descriptors = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}
            first_free = next(number for number in range(len(open_descriptors) + 1) if number not in open_descriptors)
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (first_free, hard_limit))
            done = run_code(code, daemon.address)
            return (
                f"process {pid} of this store has used all of its file descriptors, limit {first_free} (ulimit -n)"
                in done.stdout
            )

        wait_until(refused_at_accept, "a refusal that names the daemon's limit")
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (hard_limit, hard_limit))
        assert store.get(oid)[-1] == 999
        assert store.status()["pid"] == pid


def test_a_limit_of_file_sizes_for_a_private_store(place: IsolatedEnvironment) -> None:
    place.limits = {resource.RLIMIT_FSIZE: 1 << 20}
    message = refusal(place.connect(), StoreUnavailable)
    assert "File too large" in message
    assert "ulimit -f" in message


def test_a_limit_of_file_sizes_for_a_client(python: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    done = python(
        "import resource\nimport numpy as np\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "print(store.get(store.put(np.arange(1_000_000)), copy='on_write')[-1])\n"
        "with store.create(1 << 20) as blob: blob.view[-1] = 1\n"
        "print(len(store.get(blob.id)))"
    )
    assert done.stdout == "999999\n1048576\n", done.stderr


@pytest.mark.parametrize("consumers", [0, -1, 1 << 32, 1 << 40, 1.5])
def test_a_number_of_consumers_that_is_refused_is_told_its_limits(store: entrepot.Store, consumers: Any) -> None:
    with pytest.raises(InvalidArgument, match=f"from 1 to 4,294,967,295, but got {re.escape(repr(consumers))}"):
        store.put(b"x", consumers=consumers)
    store.delete(store.put(b"x", consumers=(1 << 32) - 1))
