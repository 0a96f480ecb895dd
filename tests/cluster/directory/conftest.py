"""Directories of all kinds: each server starts once for all tests of a process, each test has a cluster of its own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from control_plane import ControlPlane

sys.path.insert(0, str(Path(__file__).with_name("servers")))

from directory_servers import Server, running
from entrepot_cluster.directory import Directory, Registration, open_directory

BACKENDS = ("embedded", "etcd", "redis")
# Modules whose tests also run on a real Kubernetes API server, in the stage that has one.
ON_KUBERNETES = frozenset({"test_conformance.py", "test_instances.py"})
# With bounds on times that an API server need not keep; tests/operator/directory has such cases without them.
NOT_ON_KUBERNETES = frozenset(
    {
        "test_a_lost_instance_is_remembered_with_its_places_until_it_is_pruned",
        "test_a_lost_instance_is_seen_within_two_seconds_and_may_come_back",
        "test_a_quiet_watch_outlasts_the_timeout",
        "test_renewing_keeps_an_instance",
    }
)
KUBERNETES_TIMEOUT = 60.0  # for a request: a watchdog
_KUBERNETES = pytest.param("kubernetes", marks=(pytest.mark.cluster, pytest.mark.e2e, pytest.mark.slow))
_names = count()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests of all kinds of directories with each kind."""
    own = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")]
    if "kind" in metafunc.fixturenames and "kind" not in own:
        name = metafunc.definition.originalname
        everywhere = metafunc.definition.path.name in ON_KUBERNETES and name not in NOT_ON_KUBERNETES
        metafunc.parametrize("kind", [*BACKENDS, *([_KUBERNETES] if everywhere else [])], indirect=True)


@pytest.fixture(scope="session")
def servers() -> Iterator[Callable[[str], Server]]:
    """``servers(kind)``: the server of a kind that all tests share; they must not stop it."""
    started: dict[str, Any] = {}

    def get(kind: str) -> Server:
        if kind not in started:
            context = running(kind)
            started[kind] = (context, context.__enter__())
        server: Server = started[kind][1]
        return server

    yield get
    for context, _ in started.values():
        context.__exit__(None, None, None)


@pytest.fixture(scope="session")
def kubernetes_url(entrepot_cluster: ControlPlane) -> Callable[[str], str]:
    """``kubernetes_url(name)``: URL of a directory on the control plane, in a namespace of these tests."""
    namespace = entrepot_cluster.namespace("directory")
    return lambda name: f"kubernetes://{namespace}/{name}?kubeconfig={entrepot_cluster.kubeconfig}"


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> str:
    """A kind of directory."""
    chosen: str = request.param
    return chosen


@pytest.fixture
def url(kind: str, servers: Callable[[str], Server], tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """URL of an empty directory."""
    name = f"test{next(_names)}"
    if kind == "kubernetes":
        of: Callable[[str], str] = request.getfixturevalue("kubernetes_url")
        return of(name)
    return f"embedded://{tmp_path}/{name}" if kind == "embedded" else servers(kind).url(name)


@pytest.fixture
def open_it(url: str) -> Iterator[Callable[..., Directory]]:
    """``open_it(**options)``: open the test's directory; closed after the test."""
    opened: list[Directory] = []

    def open_one(**options: Any) -> Directory:
        if url.startswith("kubernetes:"):
            options.setdefault("timeout", KUBERNETES_TIMEOUT)
        opened.append(open_directory(url, **options))
        return opened[-1]

    yield open_one
    for directory in opened:
        directory.close()


@pytest.fixture
def directory(open_it: Callable[..., Directory]) -> Directory:
    """The test's directory."""
    return open_it()


@pytest.fixture
def private_server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server for one test, of the kind that an indirect parameter names."""
    with running(request.param) as server:
        yield server


def instance_id(number: int) -> str:
    """ID of an instance."""
    return f"{number:032x}"


@pytest.fixture
def join() -> Callable[..., Registration]:
    """``join(directory, number, **options)``: register an instance of that number."""

    def register(directory: Directory, number: int, **options: Any) -> Registration:
        settings: dict[str, Any] = {"protocol": 1, "started_at": 1000.0 + number, "lease_seconds": 30.0} | options
        return directory.register(instance_id(number), f"host-{number}", [f"10.0.0.{number}:7000"], **settings)

    return register
