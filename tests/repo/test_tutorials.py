"""Each tutorial, followed step by step as it is written: within five minutes, one's own pipeline is on a chart.

Blocks of ``bash`` are typed into one shell, blocks with a title are saved under that name, and the last command,
``entrepot ui``, is looked at in a browser. The screenshots stay in ``build/tutorials``.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
ROOT = Path(__file__).resolve().parents[2]
FIVE_MINUTES = 300.0
THE_PAGE = "entrepot ui"
_BLOCK = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.e2e,
    pytest.mark.timeout(600),
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine: apt-get install chromium"),
]


@dataclass(frozen=True)
class Reader:
    """Somebody who follows a tutorial: with a folder, and a private store, of their own."""

    folder: Path
    environment: dict[str, str]

    def follow(self, page: str) -> None:
        """Do what the tutorial says, up to the chart."""
        steps = [f"set -eu -o pipefail\ncd {self.folder}\n"]
        commands = ""
        for language, title, text in _BLOCK.findall((ROOT / "docs/tutorials" / page).read_text(encoding="utf-8")):
            if title:
                steps.append(f"mkdir -p $(dirname {title})\ncat >{title} <<'END OF FILE'\n{text}END OF FILE\n")
            elif language == "bash":
                commands += text
                # What this would install is installed: the test is about the sources of this checkout.
                steps.append("".join(line for line in text.splitlines(True) if not line.startswith("pip install ")))
        assert commands.startswith("pip install ")
        assert commands.endswith(f"\n{THE_PAGE}\n")
        assert commands.count(THE_PAGE) == 1
        script = "".join(steps).removesuffix(f"{THE_PAGE}\n")
        done = subprocess.run(
            ["bash", "-c", script], env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert done.returncode == 0, done.stdout[-8000:]

    def chart(self, screenshot: str, words: list[str]) -> None:
        """Look at the page until all these words are on it."""
        command = [*THE_PAGE.split(), "--listen", "127.0.0.1:0"]  # the usual port may be in use on this machine
        with subprocess.Popen(command, env=self.environment, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                link = re.search(r"http://127\.0\.0\.1:\d+/#token=\S+", process.stdout.readline())
                assert link is not None
                with sync_api.sync_playwright() as playwright:
                    browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
                    view = browser.new_page(viewport={"width": 1280, "height": 900})
                    view.goto(link[0])
                    for word in words:
                        sync_api.expect(view.locator("#objects tbody")).to_contain_text(word, timeout=60_000)
                    sync_api.expect(view.locator("#map button").first).to_be_visible()
                    (ROOT / "build/tutorials").mkdir(parents=True, exist_ok=True)
                    view.screenshot(path=str(ROOT / "build/tutorials" / screenshot))
                    browser.close()
            finally:
                process.terminate()


@pytest.fixture
def reader(tmp_path: Path, socket_folder: Path) -> Iterator[Reader]:
    (socket_folder / "state").mkdir()
    environment = {
        name: value for name, value in os.environ.items() if not re.match("ENTREPOT|AIRFLOW|DAGSTER|KEDRO", name)
    }
    environment |= {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "XDG_RUNTIME_DIR": str(socket_folder),
        "XDG_STATE_HOME": str(socket_folder / "state"),
        "ENTREPOT_PRIVATE_SIZE": "256MiB",
    }
    yield Reader(tmp_path, environment)
    stopped = subprocess.run(["entrepot", "stop"], env=environment, capture_output=True, text=True, timeout=60)
    assert stopped.returncode == 0, stopped.stderr


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("airflow.md", ["orders/load/return_value", "orders/tax/return_value", "orders/customers/return_value"]),
        ("dagster.md", ["asset:orders", "asset:taxed_orders", "asset:customers"]),
        ("kedro.md", ["dataset:orders", "dataset:taxed_orders", "dataset:customers", "dataset:report"]),
    ],
)
def test_a_tutorial_leads_to_a_chart_within_five_minutes(page: str, words: list[str], reader: Reader) -> None:
    begin = time.monotonic()
    reader.follow(page)
    reader.chart(page.replace(".md", ".png"), words)
    assert time.monotonic() - begin < FIVE_MINUTES
