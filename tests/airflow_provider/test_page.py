"""The page that shows what a task instance has passed on, and its link, by requests to a real API server."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import entrepot
import pytest
from entrepot_io.reference import Reference
from recorded_steps import run_program

pytestmark = [pytest.mark.slow, pytest.mark.e2e, pytest.mark.timeout(700)]

DAGS = Path(__file__).with_name("page_dags.py")
PASSWORD = "tests"
START_SECONDS = 300.0  # a watchdog


@dataclass
class ApiServer:
    """A running API server.

    Attributes:
        url: of it.
        run_id: of the run in its database.
        home: its home directory.
        token: of a user; empty: not logged in.
        address: of the store.
    """

    url: str
    run_id: str
    home: Path
    address: str
    token: str = ""

    def get(self, path: str, *, token: str | None = None, **query: str) -> tuple[int, str, dict[str, str]]:
        """Status, text and headers of a response."""
        address = f"{self.url}{path}?{urllib.parse.urlencode(query)}" if query else f"{self.url}{path}"
        request = urllib.request.Request(address)
        if sent := self.token if token is None else token:
            request.add_header("Authorization", f"Bearer {sent}")
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=60) as response:
                return response.status, response.read().decode(), dict(response.headers)
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode(), dict(error.headers)

    def page(self, task_id: str, *, kind: str = "xcoms", **query: str) -> tuple[int, str]:
        """The page of a task."""
        status, text, _ = self.get(f"/entrepot/{kind}", dag_id="page", run_id=self.run_id, task_id=task_id, **query)
        return status, text

    def xcoms(self, task_id: str, **query: str) -> dict[str, Any]:
        """What the page shows of a task's XComs, by key."""
        status, text = self.page(task_id, kind="xcoms.json", **query)
        assert status == 200, text
        return {xcom["key"]: xcom for xcom in json.loads(text)["xcoms"]}

    def log_in(self) -> None:
        """Get a token as the only user."""
        body = json.dumps({"username": "reader", "password": PASSWORD}).encode()
        request = urllib.request.Request(f"{self.url}/auth/token", body, {"Content-Type": "application/json"})
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=60) as response:
            self.token = json.load(response)["access_token"]

    def answers(self) -> bool:
        try:
            return self.get("/api/v2/version")[0] == 200
        except OSError:
            return False


@pytest.fixture(scope="module")
def server(
    module_daemon: Any, airflow_database: Callable[[], dict[str, str]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ApiServer]:
    """An API server whose database has one run of page_dags.py."""
    home = tmp_path_factory.mktemp("airflow")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = (
        os.environ
        | airflow_database()
        | {
            "AIRFLOW_HOME": str(home),
            "AIRFLOW__CORE__DAGS_FOLDER": str(DAGS.parent),
            "AIRFLOW__CORE__XCOM_BACKEND": "entrepot_airflow.EntrepotXComBackend",
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "reader:viewer",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(home / "passwords.json"),
            "AIRFLOW__API__BASE_URL": f"http://127.0.0.1:{port}",
            "AIRFLOW__ENTREPOT__SCOPE": "tests",
            "ENTREPOT_ADDRESS": module_daemon.address,
        }
    )
    (home / "passwords.json").write_text(json.dumps({"reader": PASSWORD}))
    file = home / "found.json"
    steps = run_program([sys.executable, str(DAGS), str(file)], file, environment=environment, folder=home)
    result = steps.value("page")
    assert result["state"] == "success", steps.output[-8000:]
    (home / "unpickled").unlink(missing_ok=True)  # the run's own tasks read the value
    running = ApiServer(f"http://127.0.0.1:{port}", result["run_id"], home, module_daemon.address)
    command = [sys.executable, "-m", "airflow", "api-server", "--port", str(port), "--host", "127.0.0.1"]
    with (home / "server.log").open("w") as log:
        process = subprocess.Popen(
            [*command, "--apps", "core", "--workers", "1"],
            env=environment,
            cwd=home,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            end = time.monotonic() + START_SECONDS
            while not running.answers():
                ended = process.poll() is not None or time.monotonic() > end
                assert not ended, (home / "server.log").read_text()[-8000:]
                time.sleep(0.1)
            running.log_in()
            yield running
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # with its workers, which need 10 s to end by themselves
            process.wait(60)


def test_only_who_may_read_xcoms_sees_the_page(server: ApiServer) -> None:
    query = {"dag_id": "page", "run_id": server.run_id, "task_id": "make"}
    for kind in ("xcoms", "xcoms.json"):
        assert server.get(f"/entrepot/{kind}", token="", **query)[0] == 401
        assert server.get(f"/entrepot/{kind}", token="forged", **query)[0] == 403
        assert server.get(f"/entrepot/{kind}", **query)[0] == 200
    assert server.get("/entrepot/xcoms", dag_id="page", run_id=server.run_id)[0] == 422


def test_a_table_is_shown_with_schema_and_first_rows(server: ApiServer) -> None:
    (xcom,) = [each for key, each in server.xcoms("make").items() if key == "frame"]
    preview = xcom["preview"]
    assert preview["present"]
    assert preview["problem"] == ""
    assert preview["rows"] == 50_000
    assert [column["name"] for column in preview["columns"]] == ["number", "text"]
    assert preview["head"][0] == ["0", "<script>alert(1)</script>"]
    assert len(preview["head"]) == 10
    assert preview["place"].startswith("in the memory of host ")
    assert preview["own_bytes"] >= 50_000 * 8
    # The whole dictionary was pushed after its entries, and uses their bytes.
    assert preview["shared_bytes"] > 0
    assert "page/make/frame" in preview["names"]
    assert preview["reference"]["type"] == "pandas.DataFrame"


def test_pickled_values_are_not_opened(server: ApiServer) -> None:
    xcoms = server.xcoms("make")
    assert "pickles are not opened here" in xcoms["model"]["preview"]["problem"]
    assert "pickles are not opened here" in xcoms["return_value"]["preview"]["problem"]
    assert server.page("make")[0] == 200
    assert not (server.home / "unpickled").exists()


def test_the_page_says_what_it_shows_and_runs_nothing(server: ApiServer) -> None:
    status, text = server.page("make")
    assert status == 200
    assert "<script" not in text
    assert "&lt;script&gt;alert(1)" in text
    for phrase in ("50,000", "pandas.DataFrame", "in the memory of host", "Read by", "use", "1 success", "checkpoint"):
        assert phrase in text, phrase
    assert "The value is in Airflow&#x27;s database" in text or "The value is in Airflow's database" in text
    query = {"dag_id": "page", "run_id": server.run_id, "task_id": "make"}
    headers = {name.lower(): value for name, value in server.get("/entrepot/xcoms", **query)[2].items()}
    assert headers["content-security-policy"].startswith("default-src 'none'")
    assert headers["cache-control"] == "no-store"


def test_mapped_and_missing_instances(server: ApiServer) -> None:
    for index in (0, 1):
        xcom = server.xcoms("grow", map_index=str(index))["return_value"]
        assert xcom["preview"]["text"].startswith(f"int64, {index + 1}, {index + 1}, ")
    assert server.xcoms("grow", map_index="{MAP_INDEX}") == {}
    assert server.xcoms("nothing") == {}
    assert "no XComs" in server.page("nothing")[1]


def test_a_lost_value_is_said_to_be_lost(server: ApiServer) -> None:
    reference = server.xcoms("grow", map_index="1")["return_value"]["preview"]["reference"]
    with entrepot.connect(server.address, scope="tests") as store:
        store.delete(Reference.parse({"entrepot": 1, **reference}).id)
    preview = server.xcoms("grow", map_index="1")["return_value"]["preview"]
    assert not preview["present"]
    assert "no longer in the store" in preview["problem"]


def test_airflow_links_to_the_page(server: ApiServer) -> None:
    run = urllib.parse.quote(server.run_id, safe="")
    instance = f"/api/v2/dags/page/dagRuns/{run}/taskInstances"
    links = json.loads(server.get(f"{instance}/make/links")[1])["extra_links"]
    status, text, _ = server.get(links["Entrepot values"].removeprefix(server.url))
    assert status == 200
    assert "pandas.DataFrame" in text
    links = json.loads(server.get(f"{instance}/use/links")[1])["extra_links"]
    assert not links["Entrepot values"], "its value is in Airflow's database"
    plugins = json.loads(server.get("/api/v2/plugins")[1])["plugins"]
    (view,) = [each for plugin in plugins for each in plugin["external_views"] if plugin["name"] == "entrepot"]
    assert view["destination"] == "task_instance"
