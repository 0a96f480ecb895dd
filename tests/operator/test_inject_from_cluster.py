"""``entrepot inject --from-cluster``: names, members, locations and nodes come from the API."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import entrepot
import numpy as np
import pytest
import yaml
from entrepot.cli import main
from entrepot_operator.publisher.limits import Limits
from entrepot_operator.publisher.main import Publisher
from entrepot_operator.publisher.snapshot import PublisherIdentity

Run = Callable[..., "tuple[dict[str, Any], str]"]
HOST = "kubernetes.io/hostname"


@pytest.fixture
def collection(daemon: Any, server: Any) -> Any:
    """A collection of two members, published by its store's publisher."""
    server.put(
        "/api/v1/nodes/node-a",
        {"metadata": {"name": "node-a", "labels": {HOST: "node-a", "entrepot.dev/store": "ready"}}, "spec": {}},
    )
    with entrepot.connect(daemon.address) as store:
        builder = store.collection("shards")
        for index in range(2):
            builder.append(np.full(100_000, index))
        sealed = builder.seal()
    publisher = Publisher(
        server.api(),
        lambda: entrepot.connect(daemon.address),
        PublisherIdentity("node-a", "main"),
        "stores",
        Limits(burst=1000),
    )
    publisher.publish_all(20)
    publisher.close()
    return sealed


@pytest.fixture
def inject(kubeconfig: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """``inject(manifest, *words)``: run the command; returns the resulting manifest and the text on standard error."""

    def run(manifest: dict[str, Any], *words: str, code: int = 0) -> tuple[dict[str, Any], str]:
        file = tmp_path / "manifest.yaml"
        file.write_text(yaml.safe_dump(manifest))
        command = ["inject", "-f", str(file), "--from-cluster", "--kubeconfig", str(kubeconfig), *words]
        assert main(command) == code
        captured = capsys.readouterr()
        return (yaml.safe_load(captured.out) if captured.out else {}), captured.err

    return run


def pod(**annotations: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "train", "annotations": annotations},
        "spec": {"containers": [{"name": "main", "image": "train:1"}]},
    }


def preferred_nodes(manifest: dict[str, Any]) -> list[str]:
    preferred = manifest["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    return [
        value
        for term in preferred
        for expression in term["preference"]["matchExpressions"]
        if expression["key"] == HOST
        for value in expression["values"]
    ]


def test_a_name_draws_a_pod_to_the_node_that_holds_it(collection: Any, inject: Run) -> None:
    done, messages = inject(pod(), "--require", "shards")
    assert preferred_nodes(done) == ["node-a"]
    assert done["metadata"]["annotations"]["entrepot.dev/requires"] == str(collection.id)
    assert messages == ""


def test_a_collection_is_shared_out_by_its_members(collection: Any, inject: Run) -> None:
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j"},
        "spec": {"completionMode": "Indexed", "completions": 2, "template": pod()},
    }
    done, _ = inject(job, "--partitioned", str(collection.id))
    annotations = done["spec"]["template"]["metadata"]["annotations"]
    assert annotations["entrepot.dev/partitioned"] == ",".join(map(str, collection.ids))


def test_an_expired_node_attracts_no_pod_and_is_reported(server: Any, collection: Any, inject: Run) -> None:
    server.pass_time(61)
    done, messages = inject(pod(**{"entrepot.dev/requires": str(collection.id)}))
    assert "affinity" not in done["spec"] or not preferred_nodes(done)
    assert "the lease of the store on node node-a has expired" in messages
    assert str(collection.id)[:8] in messages  # reported as a lost object


def test_a_node_that_is_gone_from_the_cluster_is_noticed(server: Any, collection: Any, inject: Run) -> None:
    del server.resources["/api/v1/nodes/node-a"]
    server.put("/api/v1/nodes/node-b", {"metadata": {"name": "node-b", "labels": {HOST: "node-b"}}})
    done, messages = inject(pod(**{"entrepot.dev/requires": str(collection.id)}))
    assert "node-a" in messages
    assert "affinity" not in done["spec"] or not preferred_nodes(done)


def test_nobody_may_list_nodes_and_the_pod_is_drawn_all_the_same(server: Any, collection: Any, inject: Run) -> None:
    server.refuse = lambda method, path, _: (403, "nodes is forbidden") if path == "/api/v1/nodes" else None
    done, _ = inject(pod(**{"entrepot.dev/requires": str(collection.id)}))
    assert preferred_nodes(done) == ["node-a"]


def test_a_name_that_nobody_published_is_an_error(collection: Any, inject: Run) -> None:
    done, messages = inject(pod(), "--require", "nothing", code=1)
    assert done == {}
    assert "no published object has the name 'nothing'" in messages


def test_no_permission_is_an_error_and_nothing_is_written(server: Any, collection: Any, inject: Run) -> None:
    server.refuse = lambda *_: (403, "localobjects is forbidden")
    done, messages = inject(pod(), code=1)
    assert done == {}
    assert "localobjects is forbidden" in messages
