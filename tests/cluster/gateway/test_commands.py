"""``entrepot start --cluster``, ``entrepot gateway`` and ``entrepot cluster``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import entrepot
import pytest
from entrepot._daemon import gateway_process
from entrepot.cli import main

pytestmark = pytest.mark.timeout(120)


def listed(url: str, capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    capsys.readouterr()
    assert main(["cluster", "--cluster", url, "--json"]) == 0
    instances: list[dict[str, object]] = json.loads(capsys.readouterr().out)
    return instances


def test_a_cluster_without_stores_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"embedded://{tmp_path}/test"
    assert main(["cluster", "--cluster", url]) == 0
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "no store has joined the cluster 'test' yet" in printed.err
    assert main(["cluster", "--cluster", url, "--lost"]) == 0
    assert "no store of the cluster 'test' is lost" in capsys.readouterr().err
    assert listed(url, capsys) == []


def test_a_store_joins_is_kept_in_and_leaves(
    socket_folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    wait_until: Callable[..., None],
) -> None:
    address, url = f"unix://{socket_folder}/store.sock", f"embedded://{socket_folder}/test"
    start = ["start", "--size", "64MiB", "--address", address, "--cluster", url, "--gateway-options", "--host one"]
    assert main(start) == 0
    try:
        assert f"joined the cluster {url}" in capsys.readouterr().out
        wait_until(lambda: len(listed(url, capsys)) == 1, "the store to be registered")
        (instance,) = listed(url, capsys)
        assert (instance["host"], instance["live"]) == ("one", True)
        assert main(start) == 0  # it can be repeated
        assert "already in the cluster" in capsys.readouterr().out
        assert main([*start[:-2], "--gateway-options", "--host two"]) != 0
        assert "has a gateway already, with other options" in capsys.readouterr().err
        assert main(["status", "--address", address]) == 0
        label = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("gateway"))
        pid = int(label.split()[2].rstrip(","))
        os.kill(pid, signal.SIGKILL)
        with entrepot.connect(address) as store:

            def serves_again() -> bool:
                gateway = store.status()["gateway"]
                return bool(gateway["serves"] and f"process {pid}," not in gateway["process"])

            wait_until(serves_again, "the gateway to be started again")
        monkeypatch.setenv("ENTREPOT_CLUSTER", url)
        wait_until(lambda: listed(url, capsys)[0]["live"], "it to be registered again")
    finally:
        assert main(["stop", "--address", address]) == 0
    assert listed(url, capsys) == []
    assert gateway_process.end_gateways(address) == []


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--cluster", "ftp://nowhere/test"], "begins with 'ftp'"),
        (["--cluster", "embedded:///nowhere/at/all/test", "--gateway-options", "--listen nothing"], "nothing"),
        (["--gateway-options", "--host x"], "needs --cluster"),
        (["--cluster", "embedded:///tmp/x", "--gateway-options", "'"], "No closing quotation"),
    ],
    ids=["URL", "address", "no cluster", "quotes"],
)
def test_what_cannot_start_says_why(
    socket_folder: Path, capsys: pytest.CaptureFixture[str], options: list[str], error: str
) -> None:
    address = f"unix://{socket_folder}/store.sock"
    assert main(["start", "--size", "64MiB", "--address", address]) == 0
    try:
        assert main(["start", "--address", address, *options]) != 0
        assert error in capsys.readouterr().err
        assert gateway_process.end_gateways(address) == []
    finally:
        assert main(["stop", "--address", address]) == 0


def test_no_cluster_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cluster"]) != 0
    assert "set ENTREPOT_CLUSTER" in capsys.readouterr().err


def test_half_of_tls_is_an_error(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code = main(["gateway", "--cluster", "embedded:///tmp/x", "--tls-cert", str(tmp_path / "c")])
    assert code != 0
    assert "TLS needs all of" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--lease-seconds", "0"], "a lease must last 1 to 86400 seconds, but got 0"),
        (["--lease-seconds", "nan"], "but got nan"),
        (["--lease-seconds", "1e300"], "but got 1e+300"),
        (["--advertise", "here"], "is host:port"),
        (["--advertise", "10.0.0.5:0"], "at port 0"),
        (["--host", ""], "name of a host must be"),
        (["--host", "a\nb"], "not 'a\\nb'"),
        (["--host", "\udc80"], "name of a host must be"),
        (["--host", "x" * 256], "name of a host must be"),
        (["--listen", ""], "is host:port"),
        (["--listen", "0.0.0.0:0"], "allow it (--insecure"),
        (["--token-file", "/nowhere"], "the token of the cluster cannot be read"),
        (["--token-file", "/dev/null"], "has 0 bytes"),
        (["--tls-cert", "/nowhere", "--tls-key", "/nowhere", "--tls-ca", "/nowhere"], "cannot be used"),
    ],
)
def test_options_that_can_never_work_are_refused(
    daemon: Any, socket_folder: Path, options: list[str], error: str
) -> None:
    command = ["gateway", "--address", daemon.address, "--cluster", f"embedded://{socket_folder}/test", *options]
    ended = subprocess.run(
        [sys.executable, "-m", "entrepot", *command], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode != 0
    assert error in ended.stderr
    assert "Traceback" not in ended.stderr
