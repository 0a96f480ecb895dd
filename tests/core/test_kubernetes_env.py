"""A client in a pod: it starts no store, and its error says where the store of its node should be."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import entrepot
import pytest
from entrepot._daemon import kubernetes_env, launcher, settings
from entrepot.cli import main
from entrepot.errors import StoreUnavailable
from entrepot_operator.placement.names import NODE_VARIABLE, ClusterConfig


@pytest.fixture
def node(socket_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A pod on node-a; the directory of its node's socket, which does not exist yet."""
    runtime = socket_folder / "runtime"
    runtime.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("ENTREPOT_NODE", "node-a")
    folder = socket_folder / "node"
    monkeypatch.setattr(kubernetes_env, "SOCKET", folder / "store.sock")
    yield folder
    monkeypatch.undo()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    if launcher.is_listening(settings.private_address()):
        with entrepot.connect(settings.private_address()) as store:
            pid = store.status()["keeper_pid"]
        assert launcher.stop(pid)
        pytest.fail("a store was started in the pod")


def make_dead_socket(path: Path) -> None:
    """A socket on which nobody listens."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


def test_the_socket_path_is_that_of_injected_pods() -> None:
    assert f"unix://{kubernetes_env.SOCKET}" == ClusterConfig().address
    assert kubernetes_env.NODE_VARIABLE == NODE_VARIABLE


def test_without_a_setting_it_says_where_the_store_should_be(node: Path) -> None:
    with pytest.raises(StoreUnavailable) as caught:
        entrepot.connect()
    assert f"the store of node 'node-a' should listen at unix://{node}/store.sock" in str(caught.value)
    assert "entrepot inject" in str(caught.value)


def test_a_store_that_is_mounted_but_not_named_is_found_and_named(node: Path) -> None:
    node.mkdir()
    make_dead_socket(node / "store.sock")
    with pytest.raises(StoreUnavailable, match=f"set ENTREPOT_ADDRESS=unix://{node}/store.sock"):
        entrepot.connect()


def test_an_emptied_environment_does_not_hide_the_pod(
    node: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST")
    monkeypatch.delenv("ENTREPOT_NODE")
    monkeypatch.setattr(kubernetes_env, "_ACCOUNT", tmp_path)
    with pytest.raises(StoreUnavailable, match="the store of the pod's node"):
        entrepot.connect()
    monkeypatch.setattr(kubernetes_env, "_ACCOUNT", tmp_path / "none")
    group = tmp_path / "cgroup"
    group.write_text("0::/kubepods/burstable/pod1\n")
    monkeypatch.setattr(kubernetes_env, "_CGROUP", group)
    assert kubernetes_env.in_pod()
    group.write_text("0::/user.slice\n")
    assert not kubernetes_env.in_pod()


@pytest.mark.parametrize(
    ("mounted", "match"),
    [
        ("nothing", "is not mounted in this pod"),
        ("folder", "exists but contains no socket: node 'node-a' has no store"),
        ("socket", "the store of node 'node-a' has ended or is restarting"),
    ],
)
def test_a_configured_store_that_does_not_answer(
    node: Path, monkeypatch: pytest.MonkeyPatch, mounted: str, match: str
) -> None:
    monkeypatch.setattr("entrepot._store.connection.CONNECT_SECONDS", 0.2)
    if mounted != "nothing":
        node.mkdir()
    if mounted == "socket":
        make_dead_socket(node / "store.sock")
    with pytest.raises(StoreUnavailable, match=match):
        entrepot.connect(f"unix://{node}/store.sock")


def test_the_command_line_says_the_same(node: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ls"]) == 1
    assert f"should listen at unix://{node}/store.sock" in capsys.readouterr().err
    assert main(["ls", "--address", f"unix://{node}/store.sock"]) == 1
    assert "is not mounted in this pod" in capsys.readouterr().err


def test_a_store_on_a_node_has_the_nodes_name(monkeypatch: pytest.MonkeyPatch, new_daemon: Any) -> None:
    monkeypatch.setenv("ENTREPOT_NODE", "node-b.example")
    running = new_daemon("64MiB")
    with entrepot.connect(running.address) as store:
        assert store.host == "node-b.example"
    running.stop()
    monkeypatch.delenv("ENTREPOT_NODE")
    running.start()
    with entrepot.connect(running.address) as store:
        assert store.host == socket.gethostname()


def test_a_reference_to_another_node_says_which(monkeypatch: pytest.MonkeyPatch, new_daemon: Any) -> None:
    from dataclasses import replace

    from entrepot.errors import ObjectLost
    from entrepot_io.connections import close_all
    from entrepot_io.values import get_value, put_value

    monkeypatch.setenv("ENTREPOT_NODE", "node-a")
    running = new_daemon("64MiB")
    with entrepot.connect(running.address) as store:
        reference = put_value(store, None, 1)
    remote_reference = replace(reference, host="node-b", instance="0f" * 16, generation=reference.generation + 1)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    try:
        assert get_value(reference, address=running.address) == 1
        with pytest.raises(ObjectLost) as caught:
            get_value(remote_reference, address=running.address)
    finally:
        close_all()
    assert "lives on host 'node-b'" in str(caught.value)
    assert "store of host 'node-a': run it on 'node-b'" in str(caught.value)
    assert f"entrepot.dev/requires: {remote_reference.id}" in str(caught.value)
