"""The compose file of examples/containers: its commands run in namespaces of their own, and share one store."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import entrepot
import pytest
import yaml
from entrepot import inventory
from entrepot.errors import StoreUnavailable

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples" / "containers"
COMPOSE: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
PAGE = (ROOT / "docs" / "containers.md").read_text()
IMAGE = (FOLDER / "Containerfile").read_text()
ISOLATED = ("unshare", "--mount", "--pid", "--fork", "--mount-proc", "--ipc", "--uts", "--kill-child")

RUN_SECONDS = 300
TABLES = {"airflow": "orders", "dagster": "orders", "kedro": "report"}  # in the store after a workflow's end

can_isolate = pytest.mark.skipif(
    shutil.which("unshare") is None
    or subprocess.run([*ISOLATED, "true"], capture_output=True, check=False).returncode != 0,
    reason="namespaces cannot be created here",
)


@dataclass
class Engine:
    """Runs services of the compose file: namespaces instead of images, and folders of its own instead of volumes."""

    folder: Path

    def path(self, text: str) -> str:
        """A path or command of a container, as it is here."""
        here = {
            "/run/entrepot": self.folder / "run",
            "/var/spill": self.folder / "spill",
            "/srv/tasks/examples": FOLDER,
            "/srv/tasks": self.folder / "work",
        }
        return re.sub("|".join(here), lambda inside: str(here[inside[0]]), text)

    @property
    def address(self) -> str:
        """The store's address outside."""
        return f"unix://{self.folder}/run/store.sock"

    def start(self, service: str, command: list[str] | None = None) -> subprocess.Popen[str]:
        """Start a service, or another command in its container; what it prints goes into a file."""
        declared = re.search(r"ENTREPOT_ADDRESS=(\S+)", IMAGE)
        assert declared is not None
        environment = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(self.folder / "work"),
            "LANG": "C.UTF-8",
            "ENTREPOT_ADDRESS": self.path(declared[1]),
        } | {name: self.path(value) for name, value in SERVICES[service].get("environment", {}).items()}
        words = [self.path(word) for word in command or SERVICES[service]["command"]]
        inside = ["sh", "-c", 'mount -t tmpfs -o size=64k shm /dev/shm && "$@"; exit $?', "container", *words]
        with (self.folder / f"{service}.log").open("w") as log:
            return subprocess.Popen(
                [*ISOLATED, *inside], cwd=self.folder / "work", env=environment, stdout=log, stderr=log, text=True
            )

    def run(self, service: str, command: list[str] | None = None) -> str:
        """Run a service to its end; returns what it printed."""
        process = self.start(service, command)
        try:
            process.wait(RUN_SECONDS)
        finally:
            process.kill()
            process.wait()
        text = (self.folder / f"{service}.log").read_text()
        assert process.returncode == 0, text[-4000:]
        return text


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """An engine with the service ``store`` running."""
    with tempfile.TemporaryDirectory(prefix="containers") as folder:
        engine = Engine(Path(folder))
        for name in ("run", "spill", "work"):
            (engine.folder / name).mkdir(mode=0o700)
        store = engine.start("store")
        try:
            deadline = time.monotonic() + 30
            while True:
                try:
                    entrepot.connect(engine.address).close()
                    break
                except StoreUnavailable:
                    assert store.poll() is None, (engine.folder / "store.log").read_text()
                    assert time.monotonic() < deadline
                    time.sleep(0.05)
            yield engine
        finally:
            store.kill()  # and, by --kill-child, keeper and daemon in its namespace
            store.wait()


def documented(service: str) -> list[str]:
    """The command that the page gives for running a workflow in a service's container."""
    row = re.search(rf"\| `run --rm {service} ?(.*?)` \|", PAGE)
    assert row is not None
    words = re.findall(r"'[^']*'|\S+", row[1])
    return [word.strip("'") for word in words] or SERVICES[service]["command"]


def stored(engine: Engine) -> set[str]:
    """Scope, session and name of everything in the store, whoever put it there."""
    with entrepot.connect(engine.address) as store:
        return {f"{item.scope} {item.session} {name}" for item in inventory.everything(store) for name in item.names}


@can_isolate
@pytest.mark.exhaustive
@pytest.mark.timeout(RUN_SECONDS + 60)
@pytest.mark.parametrize("service", ["airflow", "dagster", "kedro"])
def test_workflows_in_separate_containers_share_the_store(engine: Engine, service: str) -> None:
    before = stored(engine)
    engine.run(service, documented(service))
    added = sorted(stored(engine) - before)
    assert any(service in name and TABLES[service] in name for name in added), added


def test_services_share_what_the_page_says_they_must() -> None:
    store = SERVICES["store"]
    assert "depends_on" not in store
    for name in ("airflow", "dagster", "kedro"):
        service = SERVICES[name]
        assert service["profiles"] == [name]
        assert service["user"] == store["user"]
        assert "run:/run/entrepot" in set(service["volumes"]) & set(store["volumes"])
        assert service["depends_on"] == {"store": {"condition": "service_healthy"}}
        assert not {"ipc", "pid", "privileged", "shm_size", "network_mode"} & set(service)
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
        assert service["build"]["args"]["EXTRA"] == name
    assert set(COMPOSE["volumes"]) == {
        line.split(":")[0] for service in SERVICES.values() for line in service["volumes"]
    }
    assert store["healthcheck"]["test"] == ["CMD", "entrepot", "status"]


def test_the_image_has_what_the_services_use() -> None:
    (user,) = re.findall(r"^USER (\S+)$", IMAGE, re.MULTILINE)
    assert {service["user"] for service in SERVICES.values()} == {user}
    for service in SERVICES.values():
        for volume in service["volumes"]:
            assert f" {volume.split(':')[1]} " in IMAGE, "a volume over a folder of root's could not be written to"
    project = (ROOT / "pyproject.toml").read_text()
    for service in SERVICES.values():
        assert re.search(rf"^{service['build']['args']['EXTRA']} = \[", project, re.MULTILINE)
    ignored = (FOLDER / "Containerfile.dockerignore").read_text().split()
    assert ignored == ["*", "!dist", "!examples/containers"]
    copied = re.findall(r"^COPY (?:--\S+ )?(\S+) ", IMAGE, re.MULTILINE)
    assert all(any(source.startswith(kept.lstrip("!")) for kept in ignored[1:]) for source in copied)


@pytest.mark.skipif(shutil.which("docker-compose") is None, reason="docker-compose is not installed")
def test_docker_compose_reads_it() -> None:
    command = ["docker-compose", "-f", str(FOLDER / "compose.yaml"), "--profile", "airflow", "--profile", "dagster"]
    done = subprocess.run([*command, "--profile", "kedro", "config"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    resolved = yaml.safe_load(done.stdout)["services"]
    assert set(resolved) == set(SERVICES)
    assert resolved["dagster"]["build"]["args"] == {"EXTRA": "dagster", "PACKAGES": "dagster-webserver"}
