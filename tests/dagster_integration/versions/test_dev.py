"""dg, and `dagster dev` with its web server and daemon, on the example project."""

from __future__ import annotations

import re
import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parent))

from dagster_environments import NEWEST, ROOT, WebServer, dagster_dev, python_of, run, variables

pytestmark = [pytest.mark.exhaustive, pytest.mark.slow, pytest.mark.timeout(900)]

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
BROWSER_MS = 120_000.0
SCREENS = ROOT / "build" / "screens"
# Of the table's metadata, by label; a table of 72 bytes is in its record, so they are its own.
SHOWN_VALUES = {
    "id": r"[0-9a-f]{40}",
    "type": r"polars\.DataFrame",
    "bytes": r"72(?!\d)",
    "own_bytes": r"72(?!\d)",
    "referenced_bytes": r"AM0(?!\d)|PM0(?!\d)",
    "host": re.escape(socket.gethostname()),
    "preview": r"region\s*price\s*north\s*250\.0\s*south\s*250\.0",
    "checkpoint": r"written to \S+ \(durable session\)",
}
COMPONENT = "entrepot_dagster.components.EntrepotComponent"
LOCATION = {"repositoryName": "__repository__", "repositoryLocationName": "sales"}

METADATA = """
query ($key: AssetKeyInput!) {
  assetOrError(assetKey: $key) { ... on Asset { assetMaterializations(limit: 10) {
    partition runId metadataEntries { __typename label
      ... on IntMetadataEntry { intValue } ... on TextMetadataEntry { text }
      ... on MarkdownMetadataEntry { mdStr }
      ... on TableSchemaMetadataEntry { schema { columns { name type } } } } } } } }
"""
LAUNCH_BACKFILL = """
mutation ($params: LaunchBackfillParams!) {
  launchPartitionBackfill(backfillParams: $params) {
    __typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message } } }
"""
BACKFILL = """
query ($id: String!) { partitionBackfillOrError(backfillId: $id) {
  __typename ... on PartitionBackfill { status error { message } } } }
"""
LAUNCH_RUN = """
mutation ($params: ExecutionParams!) {
  launchPipelineExecution(executionParams: $params) {
    __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }
"""
RUN = "query ($id: ID!) { runOrError(runId: $id) { ... on Run { status } } }"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, module_daemon: Any) -> tuple[Path, dict[str, str]]:
    """A copy of the example project, and the environment of its programs."""
    python_of(NEWEST)
    folder = tmp_path_factory.mktemp("dg")
    shutil.copytree(ROOT / "examples/dagster/project", folder / "sales")
    home = folder / "home"
    home.mkdir()
    shutil.copy(ROOT / "examples/dagster/dagster.yaml", home)
    environment = variables(NEWEST, home, module_daemon.address)
    environment |= {"PYTHONPATH": str(folder / "sales/src"), "ENTREPOT_DURABLE": str(folder / "durable")}
    return folder / "sales", environment


def test_dg_lists_scaffolds_and_checks_the_component(project: tuple[Path, dict[str, str]]) -> None:
    folder, environment = project
    assert COMPONENT in run(["dg", "list", "components"], folder, environment)
    run(["dg", "scaffold", "defs", COMPONENT, "second"], folder, environment)
    created = folder / "src/sales/defs/second"
    assert yaml.safe_load((created / "defs.yaml").read_text())["type"] == COMPONENT
    (created / "defs.yaml").write_text(
        f"type: {COMPONENT}\nattributes: {{io_manager_key: other, resource_key: null}}\n"
    )
    run(["dg", "check", "yaml"], folder, environment)
    run(["dg", "check", "defs"], folder, environment)
    shutil.rmtree(created)


def test_dagster_instance_info(project: tuple[Path, dict[str, str]]) -> None:
    folder, environment = project
    assert "max_concurrent_runs: 4" in run(["dagster", "instance", "info"], folder, environment)


@pytest.fixture(scope="module")
def server(project: tuple[Path, dict[str, str]]) -> Iterator[WebServer]:
    """`dagster dev` of the project."""
    folder, environment = project
    with dagster_dev(["-m", "sales.definitions", "--log-level", "info"], folder, environment) as running:
        running.wait_for(lambda: loaded(running), "the project's assets")
        yield running


def loaded(server: WebServer) -> Any:
    nodes = server.query("{ assetNodes { assetKey { path } repository { name location { name } } } }")["assetNodes"]
    if nodes:
        repository = nodes[0]["repository"]
        LOCATION.update(repositoryName=repository["name"], repositoryLocationName=repository["location"]["name"])
    return {node["assetKey"]["path"][0] for node in nodes} == {"orders", "revenue"}


def materializations(server: WebServer, asset: str) -> dict[str | None, dict[str, Any]]:
    """Metadata of an asset's last materializations, by partition."""
    latest = server.query(METADATA, key={"path": [asset]})["assetOrError"].get("assetMaterializations", [])
    by_partition: dict[str | None, dict[str, Any]] = {}
    for each in latest:  # the latest first
        by_partition.setdefault(each["partition"], {entry["label"]: entry for entry in each["metadataEntries"]})
    return by_partition


@pytest.fixture(scope="module")
def backfilled(server: WebServer) -> WebServer:
    """The server, after its daemon has run a backfill of all partitions, and a run the table of them."""
    params = {
        "assetSelection": [{"path": ["orders"]}],
        "partitionNames": ["north", "south"],
        "fromFailure": False,
    }
    launched = server.query(LAUNCH_BACKFILL, params=params)["launchPartitionBackfill"]
    assert launched["__typename"] == "LaunchBackfillSuccess", launched

    def completed() -> bool:
        backfill = server.query(BACKFILL, id=launched["backfillId"])["partitionBackfillOrError"]
        assert backfill["status"] not in ("FAILED", "COMPLETED_FAILED", "CANCELED"), backfill
        return bool(backfill["status"] == "COMPLETED_SUCCESS")

    server.wait_for(completed, "the backfill")
    selector = {**LOCATION, "jobName": "__ASSET_JOB", "assetSelection": [{"path": ["revenue"]}]}
    launched = server.query(LAUNCH_RUN, params={"selector": selector, "mode": "default"})["launchPipelineExecution"]
    assert launched["__typename"] == "LaunchRunSuccess", launched

    def succeeded() -> bool:
        status = server.query(RUN, id=launched["run"]["runId"])["runOrError"]["status"]
        assert status not in ("FAILURE", "CANCELED"), status
        return bool(status == "SUCCESS")

    server.wait_for(succeeded, "the run")
    return server


def test_a_backfill_by_the_daemon_stores_each_partition(backfilled: WebServer) -> None:
    orders = materializations(backfilled, "orders")
    assert set(orders) == {"north", "south"}
    for metadata in orders.values():
        assert metadata["dagster/partition_row_count"]["intValue"] == 100
        assert metadata["entrepot/type"]["text"] == "polars.DataFrame"


def test_the_web_server_shows_the_metadata(backfilled: WebServer) -> None:
    (metadata,) = materializations(backfilled, "revenue").values()
    assert metadata["dagster/row_count"]["intValue"] == 2
    assert metadata["entrepot/bytes"]["intValue"] > 0
    assert len(metadata["entrepot/id"]["text"]) == 40
    columns = [(column["name"], column["type"]) for column in metadata["dagster/column_schema"]["schema"]["columns"]]
    assert columns == [("region", "String"), ("price", "Float64")]
    assert metadata["entrepot/preview"]["mdStr"].splitlines()[2] == "| north | 250.0 |"


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine: apt-get install chromium")
def test_the_page_of_an_asset_in_a_browser(backfilled: WebServer) -> None:
    sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    SCREENS.mkdir(parents=True, exist_ok=True)
    with sync_api.sync_playwright() as playwright:
        # Root has no sandbox of its own; the page is that of the server above.
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"], timeout=BROWSER_MS)
        page = browser.new_page(viewport={"width": 1600, "height": 1800})
        page.set_default_timeout(BROWSER_MS)
        page.goto(f"{backfilled.url}/assets/revenue?view=overview")
        shown = page.locator("body")
        # The columns' types and the number of rows have places of their own on this page.
        for text in (r"Columns", r"region\s*String", r"price\s*Float64", r"Row count\s*2(?!\d)"):
            sync_api.expect(shown).to_contain_text(re.compile(text), timeout=BROWSER_MS)
        for label, value in SHOWN_VALUES.items():
            row = page.locator("tr", has=page.get_by_text(f"entrepot/{label}", exact=True)).first
            sync_api.expect(row).to_contain_text(re.compile(value), timeout=BROWSER_MS)
        page.screenshot(path=SCREENS / "dagster-asset.png", full_page=True)
        page.goto(f"{backfilled.url}/assets/orders?view=partitions&partition=north")
        row_count = re.compile(r"partition_row_count.{0,40}?100(?!\d)", re.DOTALL)
        sync_api.expect(shown).to_contain_text(row_count, timeout=BROWSER_MS)
        browser.close()
