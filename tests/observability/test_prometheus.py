"""A real Prometheus scrapes ``entrepot metrics`` and ``entrepot ui``, and evaluates what the dashboard shows."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import entrepot
import httpx
import numpy as np
import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        shutil.which("prometheus") is None, reason="there is no Prometheus here: apt-get install prometheus"
    ),
]
CONFIG = """
global: {{scrape_interval: 200ms, scrape_timeout: 200ms}}
scrape_configs:
  - job_name: metrics
    static_configs: [{{targets: ["{metrics}"]}}]
  - job_name: page
    authorization: {{credentials_file: {token_file}}}
    static_configs: [{{targets: ["{page}"]}}]
  - job_name: stranger
    static_configs: [{{targets: ["{page}"]}}]
"""


class Prometheus:
    """A running Prometheus.

    Args:
        port: where it listens, on loopback.
    """

    def __init__(self, port: int) -> None:
        self._client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30)

    def query(self, expression: str) -> dict[str, float]:
        """The value of an expression now, by job.

        Raises:
            httpx.HTTPStatusError: it is no expression of PromQL.
        """
        answer = self._client.get("/api/v1/query", params={"query": expression}).raise_for_status().json()
        return {each["metric"].get("job", ""): float(each["value"][1]) for each in answer["data"]["result"]}

    def is_ready(self) -> bool:
        """Whether it answers."""
        try:
            return self._client.get("/-/ready").status_code == 200
        except httpx.TransportError:
            return False

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


@contextmanager
def metrics_server(address: str) -> Iterator[str]:
    """``entrepot metrics`` in a process; yields where it listens."""
    command = [sys.executable, "-m", "entrepot", "metrics", "--address", address, "--listen", "127.0.0.1:0"]
    process = subprocess.Popen([*command, "--interval", "0.1"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        match = re.search(r"http://(127\.0\.0\.1:\d+)/metrics", process.stdout.readline())
        assert match is not None
        yield match[1]
    finally:
        process.terminate()
        process.wait(30)
        if process.stdout is not None:
            process.stdout.close()


@pytest.fixture(scope="module")
def prometheus(module_daemon: Any, page_server: Any, tmp_path_factory: Any) -> Iterator[Prometheus]:
    """A Prometheus that scrapes the module's store in both ways, and once without the page's token."""
    folder: Path = tmp_path_factory.mktemp("prometheus")
    (folder / "token").write_text(page_server.token)
    with metrics_server(module_daemon.address) as metrics:
        page = page_server.url.removeprefix("http://")
        (folder / "prometheus.yml").write_text(
            CONFIG.format(metrics=metrics, page=page, token_file=json.dumps(str(folder / "token")))
        )
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [
                    str(shutil.which("prometheus")),
                    f"--config.file={folder}/prometheus.yml",
                    f"--storage.tsdb.path={folder}/data",
                    f"--web.listen-address=127.0.0.1:{port}",
                ],
                stdout=log,
                stderr=log,
            )
        server = Prometheus(port)
        try:
            yield server
        finally:
            server.close()
            process.terminate()
            process.wait(30)


def test_it_scrapes_both(prometheus: Prometheus, store: entrepot.Store, wait_until: Callable[..., None]) -> None:
    wait_until(prometheus.is_ready, "Prometheus to begin")
    held = store.get(store.put(np.ones(1_000_000), name="scraped", replace=True))
    both = {"metrics", "page"}

    def has_scraped_the_object() -> bool:
        pinned = prometheus.query("entrepot_pinned_bytes")
        return pinned.keys() == both and min(pinned.values()) >= held.nbytes

    wait_until(has_scraped_the_object, "the pinned object in both jobs")
    assert prometheus.query("entrepot_up") == {"metrics": 1, "page": 1}
    capacity = store.status()["capacity_bytes"]
    assert prometheus.query("entrepot_capacity_bytes") == dict.fromkeys(both, capacity)
    wait_until(lambda: prometheus.query("up").get("stranger") == 0, "a scrape without the token to be refused")


def test_it_evaluates_each_panel_of_the_dashboard(prometheus: Prometheus, wait_until: Callable[..., None]) -> None:
    wait_until(prometheus.is_ready, "Prometheus to begin")
    wait_until(lambda: len(prometheus.query("entrepot_up")) == 2, "the first scrapes")
    dashboard = json.loads(files("entrepot_metrics").joinpath("grafana.json").read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert len(expressions) > 10
    variables = {"$__rate_interval": "1m", "$instance": ".*", "$job": ".*"}
    for expression in expressions:
        for name, text in variables.items():
            expression = expression.replace(name, text)
        assert "$" not in expression, f"a variable that this test does not know: {expression}"
        prometheus.query(expression)
