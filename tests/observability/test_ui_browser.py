"""The page of ``entrepot ui`` in a real browser: what it shows and does, by keyboard, in light and dark, with axe."""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import entrepot
import numpy as np
import pyarrow as pa
import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine: apt-get install chromium"),
]
SCREENS = Path(__file__).parents[2] / "build" / "screens"
HOSTILE = "<img src=x onerror=\"document.title='owned'\">\x1b[31m\u202e"
WAIT_MS = 60_000.0


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """A headless Chromium."""
    with sync_api.sync_playwright() as playwright:
        # Root has no sandbox of its own; the page is this project's.
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"], timeout=WAIT_MS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def filled(module_daemon: Any) -> Iterator[entrepot.Store]:
    """The module's store, with objects of hostile names and some that share memory."""
    with entrepot.connect(module_daemon.address) as store:
        table = store.put(pa.table({HOSTILE: [HOSTILE] * 50_000, "n": range(50_000)}), name=HOSTILE)
        with store.session("run-1") as session:
            session.put(store.get(table).slice(0, 40_000), name="half")
        store.put_many([b"x" * number for number in range(250)])
        store.put(np.zeros((300, 4)), name="array")
        yield store


@pytest.fixture
def page(chromium: Browser, page_server: Any, filled: entrepot.Store) -> Iterator[Page]:
    """The page, logged in, with its objects."""
    with opened(chromium, page_server.link) as page:
        sync_api.expect(page.locator("#objects tbody tr")).to_have_count(100, timeout=WAIT_MS)
        yield page


class opened:  # noqa: N801 - used as a function
    """``with opened(browser, link) as page``: a page, in which nothing may fail unseen."""

    def __init__(self, browser: Browser, link: str) -> None:
        self._page = browser.new_page(viewport={"width": 1280, "height": 900})
        self._page.set_default_timeout(WAIT_MS)
        self._errors: list[str] = []
        self._page.on("pageerror", lambda error: self._errors.append(str(error)))
        self._page.on("dialog", lambda dialog: self._errors.append(dialog.message))
        self._page.on("request", self._check_request)
        self._origin = link.partition("/#")[0]
        self._page.goto(link)
        self._page.wait_for_selector("body[data-ready]")

    def _check_request(self, request: Any) -> None:
        if not request.url.startswith(self._origin):
            self._errors.append(f"asked {request.url}")

    def __enter__(self) -> Page:
        return self._page

    def __exit__(self, *_: object) -> None:
        self._page.close()
        assert self._errors == []


def wait_for_text(page: Page, selector: str, text: str) -> None:
    """Wait until an element contains a text. (The page's policy forbids Playwright's wait_for_function.)"""
    sync_api.expect(page.locator(selector)).to_contain_text(re.compile(rf"(^|\b){text}"), timeout=WAIT_MS)


def test_hostile_names_and_values_are_text(page: Page) -> None:
    shown = page.locator("#objects tbody button.name").first
    assert shown.inner_text() == "<img src=x onerror=\"document.title='owned'\">\\u001b[31m\\u202e"
    shown.click()
    page.wait_for_selector("#preview table")
    assert "<img src=x" in page.locator("#preview th").first.inner_text()
    assert "\\u001b[31m" in page.locator("#preview td").first.inner_text()
    assert page.title() == "Entrepot"
    assert page.locator("img").count() == 0
    page.keyboard.press("Escape")
    assert "#token" not in page.url


def test_the_map_leads_to_a_search(page: Page) -> None:
    page.locator("#map button", has_text="run-1").click()
    sync_api.expect(page.locator("#objects tbody tr")).to_have_count(1, timeout=WAIT_MS)
    assert page.locator("#objects tbody button.name").inner_text() == "half"
    page.select_option("#group-by", "type")
    page.wait_for_selector("#map button:has-text('arrow.table')")
    assert page.locator("#capacity div").count() == 7


def test_all_of_it_by_keyboard(page: Page, filled: entrepot.Store) -> None:
    page.keyboard.press("n")
    wait_for_text(page, "#page", "101 to")
    page.keyboard.press("p")
    wait_for_text(page, "#page", "1 to")
    doomed = filled.put(b"doomed", name="to be deleted")
    page.keyboard.press("/")
    page.keyboard.type("to be deleted")
    sync_api.expect(page.locator("#objects tbody tr")).to_have_count(1, timeout=WAIT_MS)
    row = page.locator("#objects tbody button.name")
    row.focus()
    page.keyboard.press("x")
    wait_for_text(page, "#selected", "1 selected")
    delete = page.locator("[data-action=delete]")
    delete.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#confirm[open]")
    assert "to be deleted" in page.locator("#confirm-list").inner_text()
    page.keyboard.press("Escape")
    page.wait_for_selector("#confirm:not([open])", state="attached")
    assert filled.exists(doomed)
    delete.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#confirm[open]")
    page.locator("#confirm-yes").focus()
    page.keyboard.press("Enter")
    sync_api.expect(page.locator("#objects tbody tr")).to_have_count(0, timeout=WAIT_MS)
    assert not filled.exists(doomed)
    wait_for_text(page, "#state", "Delete: 1 done")


def test_the_arrows_move_from_object_to_object(page: Page) -> None:
    page.locator("#objects tbody button.name").first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_selector("#preview table")
    assert page.locator("#detail-title").inner_text() == "half"
    assert page.locator("#detail-body h3", has_text="Shares memory with").count() == 1
    page.keyboard.press("Escape")
    page.locator("#objects thead button[data-sort=names]").click()
    page.wait_for_selector("#objects th[aria-sort=ascending] button[data-sort=names]")
    page.locator("#tab-events").focus()
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    page.wait_for_selector("#tab-sharing[aria-selected=true]")
    page.wait_for_selector("#panel button:has-text('half')")


def test_lineage_is_drawn(page: Page) -> None:
    page.locator("#tab-lineage").focus()
    page.keyboard.press("Enter")
    box = page.locator(".lineage .box", has_text="half")
    sync_api.expect(box).to_have_count(1, timeout=WAIT_MS)
    assert page.locator(".lineage path.shared").count() == 1
    spoken = box.get_attribute("aria-label") or ""
    assert "shares memory with <img src=x" in spoken
    assert "\\u001b[31m" in spoken
    place = box.bounding_box()
    assert place is not None
    assert place["width"] > 100
    box.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#preview table")
    assert page.locator("#detail-title").inner_text() == "half"


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.exhaustive)])
def test_axe_finds_nothing(page: Page, scheme: Any) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed").Axe()
    page.emulate_media(color_scheme=scheme)
    SCREENS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENS / f"ui-{scheme}.png", full_page=True)
    results = axe.run(page)
    assert results.violations_count == 0, results.generate_report()
    page.locator("#tab-lineage").click()
    page.wait_for_selector(".lineage .box")
    page.screenshot(path=SCREENS / f"ui-lineage-{scheme}.png", full_page=True)
    results = axe.run(page)
    assert results.violations_count == 0, results.generate_report()
    page.locator("#objects tbody button.name").first.click()
    page.wait_for_selector("#preview table")
    page.screenshot(path=SCREENS / f"ui-detail-{scheme}.png")
    results = axe.run(page)
    assert results.violations_count == 0, results.generate_report()


def test_without_the_token_it_shows_nothing(chromium: Browser, page_server: Any) -> None:
    context = chromium.new_context()
    stranger = context.new_page()
    stranger.goto(page_server.url)
    stranger.wait_for_selector("body[data-ready=refused]")
    assert "open the link that entrepot ui printed" in stranger.locator("#state").inner_text()
    assert stranger.locator("#objects tbody tr").count() == 0
    context.close()


@pytest.mark.exhaustive
def test_a_store_that_dies_comes_back(
    chromium: Browser, daemon: Any, new_page: Callable[..., Any], wait_until: Callable[..., None]
) -> None:
    with new_page(daemon.address) as server, opened(chromium, server.link) as page:
        with entrepot.connect(daemon.address) as store:
            store.put(b"gone", name="gone with the store")
            page.wait_for_selector("#objects tbody button:has-text('gone with the store')")
            daemon.kill(store)
        page.wait_for_selector("#state.lost")
        assert "The store does not answer" in page.locator("#state").inner_text()
        daemon.start()
        page.wait_for_selector("body[data-state=live]")
        sync_api.expect(page.locator("#objects tbody tr")).to_have_count(0, timeout=WAIT_MS)
        page.wait_for_selector("#panel .alert:has-text('replaced')")


@pytest.mark.exhaustive
def test_a_server_that_ends_is_noticed(chromium: Browser, daemon: Any, new_page: Callable[..., Any]) -> None:
    with new_page(daemon.address) as server, opened(chromium, server.link) as page:
        page.wait_for_selector("body[data-state=live]")
        os.kill(server.process.pid, signal.SIGTERM)
        server.process.wait(30)
        page.wait_for_selector("#state.lost")
        assert "is it still running" in page.locator("#state").inner_text()
