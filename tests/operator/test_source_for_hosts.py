"""``locations = cluster``: the orchestrators' plugins use what the stores' publishers reported to the API."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import entrepot
import numpy as np
import pytest
from entrepot_io.placement.hosted import Placer, brief
from entrepot_io.placement.names import Site
from entrepot_io.placement.sources import LocationsUnavailable, open_source
from entrepot_io.reference import Reference
from entrepot_operator.publishing.bounds import Bounds
from entrepot_operator.publishing.observing import Origin
from entrepot_operator.publishing.publisher import Publisher

HOST = "kubernetes.io/hostname"


@pytest.fixture
def found(kubeconfig: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the kubeconfig where the source looks for it."""
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))


def reference(oid: Any, host: str) -> Reference:
    return Reference("tests", "", oid, 1, "0" * 32, host, "numpy.ndarray", 800_000)


@pytest.mark.usefixtures("found")
@pytest.mark.parametrize("said", ["cluster", "cluster:stores"])
def test_a_pod_is_drawn_to_the_node_whose_store_published(said: str, server: Any, daemon: Any) -> None:
    labels = {HOST: "node-b", "entrepot.dev/store": "ready"}
    server.put("/api/v1/nodes/node-b", {"metadata": {"name": "node-b", "labels": labels}, "spec": {}})
    with entrepot.connect(daemon.address) as store:
        oid = store.put(np.arange(100_000), name="frame")
    publisher = Publisher(
        server.api(), lambda: entrepot.connect(daemon.address), Origin("node-b", "main"), "stores", Bounds(burst=1000)
    )
    publisher.publish_all(20)
    publisher.close()
    source, hints = open_source(said)
    assert not hints
    pod = {"metadata": {}, "spec": {"containers": [{"name": "base"}]}}
    done = Placer(source, hints, Site()).place(pod, [reference(oid, "elsewhere")])
    assert done is not None
    assert [pull.value for pull in done.pulls if pull.kind == "host"] == ["node-b"]
    assert brief(done).startswith("drawn to node-b")


@pytest.mark.usefixtures("found")
def test_a_cluster_that_does_not_answer_is_no_reason_to_wait(server: Any) -> None:
    server.stop()
    source, _ = open_source("cluster")
    assert source is not None
    with pytest.raises(LocationsUnavailable, match="the cluster"):
        source.places()
