"""``entrepot metrics``: served, scraped and parsed; a store that dies, hangs and comes back."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import entrepot
import numpy as np
import psutil
import pytest
from entrepot._cli.watch_options import parse_listen
from entrepot.cli import main
from entrepot.errors import InvalidArgument
from entrepot_metrics.store_collector import StoreCollector
from prometheus_client.parser import text_string_to_metric_families
from suspension import suspend

Scrape = Callable[[], dict[str, float]]


@contextmanager
def serving(address: str, *options: str) -> Iterator[tuple[Scrape, subprocess.Popen[str]]]:
    """``entrepot metrics`` in a process; yields what scrapes it: values by name, without labels."""
    command = [sys.executable, "-m", "entrepot", "metrics", "--address", address, "--listen", "127.0.0.1:0", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        match = re.search(r"http://127\.0\.0\.1:\d+/metrics", process.stdout.readline())
        assert match is not None
        url = match[0]

        def scrape() -> dict[str, float]:
            with urllib.request.urlopen(url, timeout=30) as response:
                text = response.read().decode()
            return {
                sample.name: sample.value
                for family in text_string_to_metric_families(text)
                for sample in family.samples
            }

        yield scrape, process
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture
def store(daemon: Any) -> Iterator[entrepot.Store]:
    """Connection to the test's store."""
    with entrepot.connect(daemon.address) as connected:
        yield connected


def test_the_first_scrape_says_whether_the_store_answers(daemon: Any, tmp_path: Path) -> None:
    for _ in range(3):
        with serving(daemon.address) as (scraping, _):
            assert scraping()["entrepot_up"] == 1
    with serving(f"unix://{tmp_path}/nobody.sock") as (scraping, _):
        assert scraping()["entrepot_up"] == 0


@pytest.fixture
def scrape(daemon: Any, wait_until: Callable[..., None]) -> Iterator[Scrape]:
    """Scrapes the test's store, once it has answered."""
    with serving(daemon.address, "--interval", "0.1") as (scraping, _):
        wait_until(lambda: scraping()["entrepot_up"] == 1, "the store's first answer")
        yield scraping


def test_what_is_in_the_store(store: entrepot.Store, scrape: Scrape, wait_until: Callable[..., None]) -> None:
    before = scrape()["entrepot_used_bytes"]
    kept = store.get(store.put(np.zeros(1_000_000)))
    wait_until(lambda: scrape()["entrepot_used_bytes"] >= before + 8_000_000, "the object to be counted")
    metrics = scrape()
    assert metrics["entrepot_objects"] >= 1
    assert metrics["entrepot_pinned_bytes"] >= kept.nbytes
    assert metrics["entrepot_capacity_bytes"] == store.status()["capacity_bytes"]
    assert metrics["entrepot_store_info"] == 1
    assert metrics["entrepot_clients"] >= 2
    assert metrics["entrepot_daemon_restarts_total"] == 0


def test_a_store_that_hangs_is_down_and_comes_back(
    store: entrepot.Store, scrape: Scrape, wait_until: Callable[..., None]
) -> None:
    pid = store.status()["pid"]
    suspend(pid)
    try:
        wait_until(lambda: scrape() == {"entrepot_up": 0}, "the store to be down")
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_until(lambda: scrape()["entrepot_up"] == 1, "the store to be up again")


def test_a_killed_daemon_is_counted(store: entrepot.Store, scrape: Scrape, wait_until: Callable[..., None]) -> None:
    os.kill(store.status()["pid"], signal.SIGKILL)
    wait_until(lambda: scrape().get("entrepot_daemon_restarts_total") == 1, "the restart to be counted")


def test_without_a_store_it_waits_for_one(tmp_path: Path) -> None:
    with serving(f"unix://{tmp_path}/nothing.sock", "--interval", "0.1") as (scraping, process):
        assert scraping() == {"entrepot_up": 0}
        process.terminate()
        assert process.wait(30) == 0


def test_the_dashboard_uses_metrics_that_exist(daemon: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["metrics", "--dashboard"]) == 0
    dashboard = json.loads(capsys.readouterr().out)
    with entrepot.connect(daemon.address) as store:
        status = store.status()
    families = list(StoreCollector(lambda: status).collect())
    names = {sample.name for family in families for sample in family.samples}
    assert len(names) > 30
    panels = dashboard["panels"]
    used = {
        name for panel in panels for target in panel["targets"] for name in re.findall(r"entrepot_\w+", target["expr"])
    }
    assert used <= names
    assert len({panel["id"] for panel in panels}) == len(panels)
    corners = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]
    assert len(set(corners)) == len(corners)
    documented = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
    assert not [name for name in names if f"`{name}`" not in documented]


def test_half_sent_requests_do_not_keep_others_from_scraping(daemon: Any) -> None:
    with serving(daemon.address) as (scrape, process), ExitStack() as stack:
        port = _port_of(process.pid)
        connections = [stack.enter_context(socket.create_connection(("127.0.0.1", port), 30)) for _ in range(300)]
        for connection in connections:
            with suppress(BrokenPipeError, ConnectionResetError):  # the server may have closed it for later ones
                connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: ")
        assert [scrape()["entrepot_up"] for _ in range(5)] == [1] * 5
        for connection in connections:
            with suppress(ConnectionResetError):
                assert connection.recv(1) == b""  # after READ_TIMEOUT at the latest


@pytest.mark.parametrize("text", ["9817", ":9817", "host:", "host:99999", "host:http"])
def test_where_to_listen_is_checked(text: str) -> None:
    with pytest.raises(InvalidArgument, match="must be HOST:PORT, such as"):
        parse_listen(text, "127.0.0.1:9817")


def test_a_port_that_is_taken_is_said(daemon: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(daemon.address) as (_, process):
        listen = f"127.0.0.1:{_port_of(process.pid)}"
        assert main(["metrics", "--address", daemon.address, "--listen", listen]) != 0
    assert "cannot listen there" in capsys.readouterr().err


def _port_of(pid: int) -> int:
    (connection,) = [each for each in psutil.Process(pid).net_connections("tcp") if each.status == "LISTEN"]
    return int(connection.laddr[1])
