"""Kedro-Viz shows a stored dataset's preview: its JSON API, and its page in a real browser.

In an environment of its own, because Kedro-Viz needs a web server and much else: `make environments`.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
PYTHON = Path(__file__).resolve().parents[2] / ".venv-kedro-viz/bin/python"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.slow,
    pytest.mark.e2e,
    pytest.mark.timeout(700),
    pytest.mark.skipif(not PYTHON.exists(), reason="the environment kedro-viz is not there: `make environments`"),
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine: apt-get install chromium"),
]
SECONDS = 120


@dataclass
class Viz:
    """A Kedro-Viz that serves a project."""

    url: str

    def get(self, path: str) -> Any:
        """Return what its JSON API answers."""
        with urllib.request.urlopen(f"{self.url}/api/{path}", timeout=SECONDS) as answer:
            return json.load(answer)

    def dataset(self, name: str) -> str:
        """Return the ID of the node that stands for a dataset."""
        nodes = self.get("main")["nodes"]
        (node_id,) = {each["id"] for each in nodes if each["name"] == name and each["type"] == "data"}
        return str(node_id)


@pytest.fixture
def project(tmp_path: Path, daemon: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project of the starter that has run."""
    for name, value in {"ENTREPOT_ADDRESS": daemon.address, "ENTREPOT_SCOPE": "tests", "DO_NOT_TRACK": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("ENTREPOT_SESSION", raising=False)
    execute("new", "--starter", "entrepot", "--name", "Shop Project", "--telemetry", "no", folder=tmp_path)
    execute("run", folder=tmp_path / "shop-project")
    return tmp_path / "shop-project"


def execute(*arguments: str, folder: Path) -> None:
    process = subprocess.run(
        [str(PYTHON), "-m", "kedro", *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    assert process.returncode == 0, process.stdout


@contextmanager
def viz(folder: Path, wait_until: Callable[..., None], *options: str) -> Iterator[Viz]:
    # It takes the first free port from there on, of those below the ports that the kernel gives to clients.
    port = random.randrange(20_000, 32_000)
    command = [str(PYTHON), "-m", "kedro", "viz", "run", "--no-browser", "--host", "127.0.0.1", "--port", str(port)]
    log = folder / "viz.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [*command, *options], cwd=folder, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )

    def url() -> str | None:
        text = log.read_text()
        assert process.poll() is None or "started successfully" in text, text
        running = re.search(r"is running at\s+(http://127\.0\.0\.1:\d+)/", text)
        return running and running[1]

    try:
        wait_until(url, "Kedro-Viz", SECONDS)
        yield Viz(str(url()))
    finally:
        with suppress(ProcessLookupError):  # it ended by itself, as an assertion above reports
            os.killpg(process.pid, signal.SIGKILL)  # its server is a process of its own
        process.wait()


def remove_name(project: Path) -> None:
    """Leave it to the plugin's hook to name the entry of the catalog."""
    catalog = project / "conf/base/catalog.yml"
    lines = catalog.read_text().splitlines(keepends=True)
    kept = [line for line in lines if not line.startswith("  name:")]
    assert len(kept) == len(lines) - 1
    catalog.write_text("".join(kept))


@pytest.mark.parametrize("options", [(), ("--include-hooks",)], ids=["named", "hooks"])
def test_its_page_shows_rows_schema_and_sizes(
    project: Path, wait_until: Callable[..., None], options: tuple[str, ...]
) -> None:
    if options:
        remove_name(project)
    with viz(project, wait_until, *options) as served, sync_api.sync_playwright() as playwright:
        node = served.dataset("report")
        facts = served.get(f"nodes/{node}")
        assert facts["preview_type"] == "TablePreview"
        preview = facts["preview"]
        assert preview["schema"] == {"customer": "int64", "taxed": "float64"}
        assert preview["rows"] == 10
        assert preview["nbytes"] > 160
        # Root has no sandbox of its own; the page is this machine's.
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1600, "height": 1000})
        page.goto(f"{served.url}/?sid={node}", timeout=SECONDS * 1000)
        table = page.locator(".preview-table").first
        table.wait_for(timeout=SECONDS * 1000)
        assert table.locator("th").all_inner_texts() == ["customer: int64", "taxed: float64"]
        shown = [row.locator("td").all_inner_texts() for row in table.locator("tr").all()[1:]]
        assert shown == preview["data"]
        assert len(shown) == 6
        assert shown[-1][0].startswith("10 rows x 2 columns, ")
        browser.close()


def test_without_name_and_hooks_its_log_says_what_to_do(project: Path, wait_until: Callable[..., None]) -> None:
    remove_name(project)
    with viz(project, wait_until) as served:
        assert served.get(f"nodes/{served.dataset('report')}").get("preview") is None
    assert "needs a name" in (project / "viz.log").read_text()
