"""``python -m benchmarks checkpoints``: saving and loading compared with a plain write and read of the same bytes.

Same target, same run, interleaved: every round generates new random bytes, saves them and loads them into a second
store, and writes and reads them as one file with fsspec alone. On a disk the plain write is synced, as a save is; its
time without syncing is shown as well. Files just written are dropped from the page cache before they are read, for
both.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from argparse import _SubParsersAction

OBJECTS = 4
WAIT_SECONDS = 60.0


def add_checkpoints(commands: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``checkpoints``."""
    parser = commands.add_parser("checkpoints", help="saving and loading beside plain writes and reads")
    parser.add_argument("--mib", type=int, default=512, help="of payload (default 512)")
    parser.add_argument("--rounds", type=int, default=5, help="default 5; medians are printed")
    parser.add_argument(
        "--folder", type=Path, help="on the disk that is measured (default: the system's temporary one)"
    )
    parser.add_argument("--targets", nargs="+", choices=("folder", "s3"), default=["folder", "s3"])
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Measure, and print a table."""
    print("| target | what | Entrepot MB/s | plain MB/s | share |\n|---|---|---|---|---|")
    with ExitStack() as stack:
        scratch = Path(tempfile.mkdtemp(prefix="entrepot-bench-", dir=arguments.folder))
        stack.callback(shutil.rmtree, scratch, ignore_errors=True)
        size = max(256, 3 * arguments.mib)
        first = stack.enter_context(own_store(scratch / "a", size))
        second = stack.enter_context(own_store(scratch / "b", size))
        figures: list[dict[str, Any]] = []
        for target in arguments.targets:
            url, options = str(scratch / "target"), {}
            if target == "s3":
                options = stack.enter_context(_s3())
                url = "s3://bench/target"
            taken = _measure(first, second, url, options, arguments.mib << 20, arguments.rounds)
            figures += _figures(target, taken)
            _print(target, taken)
        if arguments.json is not None:
            arguments.json.write_text(json.dumps(figures), encoding="utf-8")
    return 0


def _measure(
    first: Any, second: Any, url: str, options: dict[str, Any], nbytes: int, rounds: int
) -> dict[str, list[float]]:
    import fsspec
    import numpy as np

    fs, path = fsspec.url_to_fs(url, use_listings_cache=False, **options)
    taken: dict[str, list[float]] = {}

    def timed(what: str, work: Callable[[], Any]) -> Any:
        begin = time.perf_counter()
        done = work()
        taken.setdefault(what, []).append(nbytes / 1e6 / (time.perf_counter() - begin))
        return done

    for number in range(rounds + 1):
        rng = np.random.default_rng(number)
        data = rng.integers(0, 1 << 63, nbytes // 8).tobytes()
        step = nbytes // OBJECTS // 8 * 8
        ids = [first.put(np.frombuffer(data[i * step : (i + 1) * step], "u1")) for i in range(OBJECTS)]
        name = uuid.uuid4().hex
        timed("save", lambda: first.save(ids, f"{url}/{name}", storage_options=options))  # noqa: B023
        timed("plain write", lambda: _write(fs, f"{path}/plain", data, sync=True))  # noqa: B023
        if not options:
            timed("plain write, not synced", lambda: _write(fs, f"{path}/plain2", data, sync=False))  # noqa: B023
        if not options:
            _drop_page_cache(Path(path))
        timed("load", lambda: second.load(f"{url}/{name}", storage_options=options))  # noqa: B023
        read = timed("plain read", lambda: fs.cat_file(f"{path}/plain"))
        if read != data or bytes(second.get(ids[-1])) != data[(OBJECTS - 1) * step : OBJECTS * step]:
            raise RuntimeError(f"{url} gave other bytes back")
        begin = time.perf_counter()
        again = first.save(ids, f"{url}/{name}", storage_options=options)
        taken.setdefault("save of the same, ms", []).append(1e3 * (time.perf_counter() - begin))
        if again.written_bytes:
            raise RuntimeError("a save of the same wrote something")
        for oid in ids:
            first.delete(oid)
            second.delete(oid)
        fs.rm(path, recursive=True)
    return {what: values[1:] for what, values in taken.items()}  # the first round is a warm-up


def _write(fs: Any, path: str, data: bytes, *, sync: bool) -> None:
    fs.makedirs(path.rpartition("/")[0], exist_ok=True)
    if "file" not in fs.protocol:
        fs.pipe_file(path, data)
        return
    with fs.open(path, "wb") as file:
        file.write(data)
        if sync:
            file.flush()
            os.fsync(file.fileno())


def _drop_page_cache(folder: Path) -> None:
    """Drop all files below a directory from the page cache, so that reads go to the disk."""
    for path in folder.rglob("*"):
        if path.is_file():
            file = os.open(path, os.O_RDONLY)
            os.fsync(file)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(file)


def _figures(target: str, taken: dict[str, list[float]]) -> list[dict[str, Any]]:
    """Medians in MB/s, of Entrepot and of the plain operation."""
    middle = {what: statistics.median(values) for what, values in taken.items()}
    pairs = (("save", "plain write"), ("save", "plain write, not synced"), ("load", "plain read"))
    return [
        {"target": target, "what": f"{ours} beside {plain}", "ours": middle[ours], "plain": middle[plain]}
        for ours, plain in pairs
        if plain in middle
    ]


def _print(target: str, taken: dict[str, list[float]]) -> None:
    middle = {what: statistics.median(values) for what, values in taken.items()}
    for line in _figures(target, taken):
        share = line["ours"] / line["plain"]
        print(f"| {target} | {line['what']} | {line['ours']:.0f} | {line['plain']:.0f} | {share:.2f} |")
    print(f"| {target} | save of the same again | {middle['save of the same, ms']:.1f} ms | | |", flush=True)


@contextmanager
def own_store(folder: Path, mib: int, *options: str) -> Iterator[Any]:
    """Context with a store of ``mib`` MiB, all warm, that logs to a new directory; yields a connection to it."""
    import entrepot

    folder.mkdir()
    address = f"unix://{tempfile.mkdtemp(prefix='eb-')}/s"
    command = [sys.executable, "-m", "entrepot.daemon_main", "--address", address, "--size", f"{mib}MiB"]
    command += ["--warm-bytes", f"{mib}MiB", "--log-file", str(folder / "log"), *options]
    process = subprocess.Popen(command)
    try:
        _wait(lambda: Path(address.removeprefix("unix://")).exists(), process)
        with entrepot.connect(address) as store:
            store.wait_provisioned(WAIT_SECONDS)
            yield store
    finally:
        process.terminate()
        process.wait(WAIT_SECONDS)
        shutil.rmtree(Path(address.removeprefix("unix://")).parent, ignore_errors=True)


@contextmanager
def _s3() -> Iterator[dict[str, Any]]:
    import s3fs

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait(lambda: _listens(port), process)
        options = {"key": "k", "secret": "s", "client_kwargs": {"endpoint_url": f"http://127.0.0.1:{port}"}}
        s3fs.S3FileSystem(**options).mkdir("bench")
        yield options
    finally:
        process.kill()
        process.wait(WAIT_SECONDS)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _wait(condition: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + WAIT_SECONDS
    while not condition():
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"{process.args!r} did not start")
        time.sleep(0.02)
