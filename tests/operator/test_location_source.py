"""``locations = cluster``: the orchestrators' plugins use what the stores' publishers reported to the API."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import entrepot
import numpy as np
import pytest
from entrepot_io.reference import Reference
from entrepot_operator.placement.names import ClusterConfig
from entrepot_operator.placement.pod_placement import PodPlacer, summarize
from entrepot_operator.placement.sources import LocationsUnavailable, open_source
from entrepot_operator.publisher.limits import Limits
from entrepot_operator.publisher.main import Publisher
from entrepot_operator.publisher.snapshot import PublisherIdentity

HOST = "kubernetes.io/hostname"


@pytest.fixture
def cluster_found(kubeconfig: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the kubeconfig where the source looks for it."""
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))


def reference(oid: Any, host: str) -> Reference:
    return Reference("tests", "", oid, 1, "0" * 32, host, "numpy.ndarray", 800_000)


@pytest.mark.usefixtures("cluster_found")
@pytest.mark.parametrize("locations", ["cluster", "cluster:stores"])
def test_a_pod_is_drawn_to_the_node_whose_store_published(locations: str, server: Any, daemon: Any) -> None:
    labels = {HOST: "node-b", "entrepot.dev/store": "ready"}
    server.put("/api/v1/nodes/node-b", {"metadata": {"name": "node-b", "labels": labels}, "spec": {}})
    with entrepot.connect(daemon.address) as store:
        oid = store.put(np.arange(100_000), name="frame")
    publisher = Publisher(
        server.api(),
        lambda: entrepot.connect(daemon.address),
        PublisherIdentity("node-b", "main"),
        "stores",
        Limits(burst=1000),
    )
    publisher.publish_all(20)
    publisher.close()
    source, hints = open_source(locations)
    assert not hints
    pod = {"metadata": {}, "spec": {"containers": [{"name": "base"}]}}
    done = PodPlacer(source, hints, ClusterConfig()).place(pod, [reference(oid, "elsewhere")])
    assert done is not None
    assert [pull.value for pull in done.pulls if pull.kind == "host"] == ["node-b"]
    assert summarize(done).startswith("prefers node-b")


@pytest.mark.usefixtures("cluster_found")
def test_a_cluster_that_does_not_answer_is_no_reason_to_wait(server: Any) -> None:
    server.stop()
    source, _ = open_source("cluster")
    assert source is not None
    with pytest.raises(LocationsUnavailable, match="the cluster"):
        source.places()
