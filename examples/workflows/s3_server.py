"""An S3 server in a folder: versitygw, a Go program, built once from the Go module proxy.

    python -m examples.workflows.s3_server       builds it, and prints the path of the program

The path is ``$XDG_CACHE_HOME/entrepot/versitygw-VERSION/versitygw`` (``~/.cache``). A build takes some two minutes of
CPU time; modules are downloaded as the machine's Go is configured, and checked against Go's checksum database.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from examples.flights.processes import Child, DemoError

VERSION = "v1.8.0"
PACKAGE = f"github.com/versity/versitygw/cmd/versitygw@{VERSION}"
BUILD_VARIABLE = "ENTREPOT_BUILD_VERSITYGW"  # if set, it is built when it is missing
REGION = "us-east-1"
BUCKET = "workflows"
# Read at import, before the tests replace the environment.
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "entrepot"
_BUILD_SECONDS = 1800.0
_START_SECONDS = 60.0


def program() -> Path:
    """Path of the program, whether it exists or not."""
    return CACHE / f"versitygw-{VERSION}" / "versitygw"


def ensure() -> Path:
    """Return the program's path; build it if it is missing, or wait for a concurrent build.

    Raises:
        DemoError: there is no Go, or the build failed.
    """
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "versitygw.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program().exists():
            _build()
    return program()


def prepare() -> Path:
    """Return the program's path; build it if it is missing and may be built.

    Raises:
        DemoError: it is missing, and ENTREPOT_BUILD_VERSITYGW is not set, or it cannot be built.
    """
    if not program().exists() and not os.environ.get(BUILD_VARIABLE):
        raise DemoError(
            f"the S3 server is not at {program()}: build it with `python -m examples.workflows.s3_server`, set "
            f"{BUILD_VARIABLE}=1, or leave it out with --transports"
        )
    return ensure()


def _build() -> None:
    go = shutil.which("go")
    if go is None:
        raise DemoError(
            f"versitygw is not at {program()}, and there is no Go to build it with: install Go (golang.org)"
        )
    with tempfile.TemporaryDirectory(prefix="versitygw-") as folder:
        # Without cgo it needs no compiler beside Go's own.
        variables = os.environ | {"GOBIN": folder, "CGO_ENABLED": "0", "GOFLAGS": "-trimpath"}
        try:
            done = subprocess.run(
                [go, "install", PACKAGE], env=variables, capture_output=True, text=True, timeout=_BUILD_SECONDS
            )
        except subprocess.TimeoutExpired as error:
            raise DemoError(f"go install {PACKAGE} has not ended after {_BUILD_SECONDS:.0f} s") from error
        if done.returncode != 0:
            raise DemoError(f"go install {PACKAGE}:\n{done.stderr[-4000:]}")
        program().parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(Path(folder) / "versitygw", program().with_suffix(".new"))
        program().with_suffix(".new").rename(program())


@dataclass(frozen=True)
class S3Access:
    """How clients reach the server.

    Attributes:
        endpoint: host and port.
        key, secret: of its only user.
    """

    endpoint: str
    key: str
    secret: str


@contextmanager
def running(
    folder: Path, address: str, port: int, wrap: Callable[[Sequence[str]], list[str]], environment: Mapping[str, str]
) -> Iterator[tuple[S3Access, int]]:
    """Context with a server and an empty bucket; yields how to reach it, and the server's process ID.

    Args:
        folder: where it keeps its objects, as files.
        address, port: where it listens.
        wrap: makes a command line run on the server's host.
        environment: of the server.

    Raises:
        DemoError: it does not start, or is not there.
    """
    path = prepare()
    access = S3Access(f"{address}:{port}", "demo", secrets.token_hex(16))
    objects = folder / "objects"
    (objects / BUCKET).mkdir(parents=True)
    variables = dict(environment) | {"ROOT_ACCESS_KEY": access.key, "ROOT_SECRET_KEY": access.secret}
    command = [str(path), "--port", access.endpoint, "--region", REGION, "--quiet", "posix", str(objects)]
    log = folder / "versitygw.log"
    with Child("versitygw", wrap(command), log=log, environment=variables, folder=folder) as child:
        probe = [sys.executable, "-c", _PROBE, address, str(port)]
        child.wait_for(
            lambda: subprocess.run(wrap(probe), check=False, timeout=_START_SECONDS).returncode == 0,
            f"a listener at {access.endpoint}",
            _START_SECONDS,
        )
        yield access, child.pid


_PROBE = (
    "import socket, sys; s = socket.socket(); s.settimeout(2); "
    "sys.exit(s.connect_ex((sys.argv[1], int(sys.argv[2]))) != 0)"
)


def free_port(address: str = "127.0.0.1") -> int:
    """A port of an address of this machine that is currently free."""
    with socket.socket() as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    try:
        print(ensure())
    except DemoError as failure:
        sys.exit(str(failure))
