"""The score plugin in a scheduler of its own: pods without affinity go where most of the data they read is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import kubecp_build
import pytest
import yaml
from control_plane import create_control_plane
from entrepot_operator import crds
from fake_publisher import publish, renew

PLUGIN = Path(__file__).resolve().parents[2] / "operator" / "scheduler-plugin"
READER = Path(crds.MANIFESTS) / "reader" / "rbac.yaml"
A, B, STALE = "aa" * 20, "bb" * 20, "cc" * 20
HELD = {"plug-a": {A: 7}, "plug-b": {A: 2, B: 6}, "plug-c": {STALE: 9}, "plug-d": {}}


@pytest.fixture(scope="module")
def plane(control_plane: Any) -> Iterator[Any]:
    """Second control plane, whose scheduler has the plugin's profile; ``control_plane`` is only used for its marks."""
    config = yaml.safe_load((PLUGIN / "config.yaml").read_text())
    with create_control_plane(scheduler_config=config) as second_plane:
        second_plane.install(crds.definitions())
        for path in (READER, PLUGIN / "rbac.yaml"):
            for each in yaml.safe_load_all(path.read_text()):
                second_plane.apply(second_plane.path_of(each), each)
        second_plane.nodes({name: {} for name in HELD}, pods="12")
        _publish(second_plane)
        yield second_plane


def _publish(plane: Any) -> None:
    for node, sizes in HELD.items():
        renew(plane, "default", node, ago=timedelta(hours=2 if STALE in sizes else 0))
        for oid, count in sizes.items():
            publish(plane, "default", oid, node, count << 20)


def placed(plane: Any, count: int, scheduler: str, **annotations: str) -> Counter[str]:
    """Number of pods, out of ``count``, that were placed on each node."""
    namespace = plane.namespace()
    own = {f"entrepot.dev/{name}": value for name, value in annotations.items()}
    spec = {"schedulerName": scheduler, "containers": [{"name": "main", "image": "none"}]}
    names = [f"p{number}" for number in range(count)]
    for name in names:
        body = {"metadata": {"name": name, "annotations": own}, "spec": spec}
        plane.request("POST", f"/api/v1/namespaces/{namespace}/pods", body)
    counts = Counter(plane.bound(namespace, names).values())
    plane.request("DELETE", f"/api/v1/namespaces/{namespace}/pods?gracePeriodSeconds=0")
    plane.wait(lambda: not plane.listed(f"/api/v1/namespaces/{namespace}/pods"), "the pods to go")
    return counts


def test_its_own_tests(control_plane: Any) -> None:
    """Run after the control plane was built, so that no part of Kubernetes has to be compiled for them."""
    done = kubecp_build.go_test("entrepot.dev/scheduler-plugin", 250)
    assert done.returncode == 0, done.stdout + done.stderr


def test_pods_go_where_the_bytes_are(plane: Any) -> None:
    # Until the scheduler has read what was published, it places pods as usual.
    plane.wait(lambda: set(placed(plane, 4, "entrepot-scheduler", requires=A)) == {"plug-a"}, "the plugin's watches")
    assert placed(plane, 6, "entrepot-scheduler", requires=A) == {"plug-a": 6}
    assert placed(plane, 6, "entrepot-scheduler", requires=f"{A},{B}") == {"plug-b": 6}
    assert placed(plane, 6, "entrepot-scheduler", requires=B) == {"plug-b": 6}


def test_what_does_not_count_draws_nobody(plane: Any) -> None:
    for annotation_set in ({}, {"requires": STALE}, {"requires": A, "locality": "off"}, {"requires": "no-id"}):
        assert len(placed(plane, 8, "entrepot-scheduler", **annotation_set)) > 1, annotation_set


def test_the_other_profile_is_as_it_was(plane: Any) -> None:
    assert len(placed(plane, 8, "default-scheduler", requires=A)) > 1


def test_who_finds_no_room_there_runs_elsewhere(plane: Any) -> None:
    counts = placed(plane, 20, "entrepot-scheduler", requires=A)
    assert sum(counts.values()) == 20
    assert counts["plug-a"] == 12
