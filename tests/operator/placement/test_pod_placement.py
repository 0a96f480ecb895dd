"""Pods created by an orchestrator: annotations, sources of locations, and behaviour with missing information."""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from entrepot.errors import InvalidArgument, VersionMismatch
from entrepot.ids import ObjectID
from entrepot_io.reference import Reference
from entrepot_operator.placement import names, placement_hints
from entrepot_operator.placement.names import ClusterConfig
from entrepot_operator.placement.pod_placement import PodPlacer, get_pod_placer, resolve_placement_config, summarize
from entrepot_operator.placement.sources import FileSource, LocationsUnavailable, open_source

SHARDS, MODEL = "5b" * 20, "90" * 20
GIB = 1 << 30


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOCATIONS", "SOCKET_FOLDER", "SHARED_MEMORY"):
        monkeypatch.delenv(f"ENTREPOT_{name}", raising=False)


def reference(oid: str, host: str, nbytes: int) -> Reference:
    return Reference("tests", "run", ObjectID(oid), 1, "0" * 32, host, "bytes", nbytes)


def pod(**annotations: str) -> dict[str, Any]:
    prefixed = {f"{names.GROUP}/{key}": value for key, value in annotations.items()}
    return {"metadata": {"annotations": prefixed}, "spec": {"containers": [{"name": "base"}]}}


def hosts(pod: Any) -> list[tuple[int, str]]:
    """Preferred nodes with their weights."""
    node = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    terms = node.get("preferredDuringSchedulingIgnoredDuringExecution", [])
    return [
        (term["weight"], value)
        for term in terms
        for expression in term["preference"]["matchExpressions"]
        if expression["key"] == names.HOSTNAME
        for value in expression["values"]
    ]


def bound(pod: Any) -> Any:
    node = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    return node.get("requiredDuringSchedulingIgnoredDuringExecution")


def written(path: Path, objects: dict[str, dict[str, int]], **more: Any) -> Path:
    path.write_text(json.dumps({"version": 1, "objects": objects, **more}))
    return path


# --- annotations


def test_annotations_round_trip() -> None:
    hint_annotations = placement_hints.build_annotations(
        reads=["group.load", "clean[3]", "a b,c%"], keys=["dataset:a/b"], scope="s", session="x", requires=[SHARDS]
    )
    assert placement_hints.parse_reads(hint_annotations) == ("group.load", "clean[3]", "a b,c%")
    assert hint_annotations[names.REQUIRES] == SHARDS
    keyed = placement_hints.parse_keyed_objects(hint_annotations)
    assert keyed is not None
    assert keyed.ids("another") == [str(ObjectID.derive("s", "x", "dataset:a/b"))]


def test_reading_nothing_is_not_the_same_as_saying_nothing() -> None:
    assert placement_hints.parse_reads(placement_hints.build_annotations(reads=[])) == ()
    assert placement_hints.parse_reads(placement_hints.build_annotations()) is None
    assert placement_hints.build_annotations() == {}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"locality": "always"}, "'always'"),
        ({"requires": ["abc"]}, "'abc'"),
        ({"requires": SHARDS}, "a list of object IDs"),
        ({"reads": "load"}, "'load'"),
        ({"reads": [""]}, "''"),
        ({"keys": ["dataset:a"]}, names.SCOPE),
    ],
)
def test_an_invalid_hint_is_refused_when_it_is_set(wrong: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message.replace("[", r"\[")):
        placement_hints.build_annotations(**wrong)


def test_keys_without_a_session_need_one_from_the_orchestrator() -> None:
    keyed = placement_hints.parse_keyed_objects(placement_hints.build_annotations(keys=["dataset:a"], scope="s"))
    assert keyed is not None
    assert keyed.ids("run") == [str(ObjectID.derive("s", "run", "dataset:a"))]
    with pytest.raises(InvalidArgument, match=names.SESSION):
        keyed.ids(None)


# --- sources


def test_a_file_is_read_again_when_it_changed(tmp_path: Path) -> None:
    file = written(tmp_path / "locations.json", {SHARDS: {"node-a": 1}})
    source = FileSource(file)
    first = source.places()
    assert first.objects == {SHARDS: {"node-a": 1}}
    assert source.places() is first
    written(tmp_path / "new.json", {SHARDS: {"node-b": 1}}).rename(file)
    assert source.places().objects == {SHARDS: {"node-b": 1}}


def test_a_file_that_is_not_there_yet(tmp_path: Path) -> None:
    source = FileSource(tmp_path / "locations.json")
    with pytest.raises(LocationsUnavailable, match=r"locations\.json"):
        source.places()
    written(tmp_path / "locations.json", {SHARDS: {"node-a": 1}})
    assert SHARDS in source.places().objects


@pytest.mark.parametrize("name", ["", "relative.yaml", "nowhere:x", "/a,/b"])
def test_an_unknown_source_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgument, match="references"):
        open_source(name)


def test_a_package_adds_a_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "census.py").write_text(
        "from entrepot_operator.placement.locations import Locations\n"
        "class Census:\n"
        "    def __init__(self, rest): self.rest = rest\n"
        f"    def places(self): return Locations({{'{SHARDS}': {{self.rest: 5}}}})\n"
    )
    info = tmp_path / "census-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: census\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[entrepot.locations]\ncensus = census:Census\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    source, hints = open_source("census:node-z, references")
    assert source is not None
    assert source.places().objects == {SHARDS: {"node-z": 5}}
    assert hints
    sys.modules.pop("census")


# --- settings


def test_what_is_given_goes_before_the_environment_and_that_before_the_orchestrator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    configured = {"locations": "/host", "shared_memory": "none"}.get
    assert resolve_placement_config(lambda _: None) is None
    assert get_pod_placer() is None
    resolved = resolve_placement_config(configured)
    assert resolved is not None
    assert (resolved.locations, resolved.cluster_config.shared_memory) == ("/host", None)
    monkeypatch.setenv("ENTREPOT_LOCATIONS", "/environment")
    monkeypatch.setenv("ENTREPOT_SOCKET_FOLDER", "/run/store")
    resolved = resolve_placement_config(configured)
    assert resolved is not None
    assert (resolved.locations, resolved.cluster_config.socket_folder) == ("/environment", "/run/store")
    resolved = resolve_placement_config(configured, arguments={"locations": "/given", "socket_folder": None})
    assert resolved is not None
    assert (resolved.locations, resolved.cluster_config.socket_folder) == ("/given", "/run/store")


def test_a_process_has_one_placer_for_a_setup(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENTREPOT_LOCATIONS", "references")
    first = get_pod_placer()
    assert first is get_pod_placer()
    monkeypatch.setenv("ENTREPOT_SOCKET_FOLDER", "/run/store")
    assert first is not get_pod_placer()


def test_a_child_of_a_fork_can_place_while_a_thread_of_its_parent_did() -> None:
    from entrepot_operator.placement import pod_placement

    with pod_placement._lock:
        child = os.fork()
        if child == 0:
            os._exit(0 if pod_placement._lock.acquire(blocking=False) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# --- placement


def test_what_a_source_says_goes_before_where_a_reference_was_written(tmp_path: Path) -> None:
    source = FileSource(written(tmp_path / "locations.json", {SHARDS: {"node-b": 8 * GIB}}))
    done = PodPlacer(source, True, ClusterConfig()).place(
        pod(), [reference(SHARDS, "node-a", 8 * GIB), reference(MODEL, "node-c", 4 * GIB)]
    )
    assert done is not None
    assert hosts(done.pod) == [(100, "node-b"), (50, "node-c")]
    assert summarize(done) == "prefers node-b (8.0 GiB), node-c (4.0 GiB), which hold its 2 inputs"


def test_without_hints_a_reference_says_only_what_is_read(tmp_path: Path) -> None:
    done = PodPlacer(None, False, ClusterConfig()).place(pod(), [reference(SHARDS, "node-a", GIB)])
    assert done is not None
    assert hosts(done.pod) == []
    assert [reason.code for reason in done.reasons] == ["unknown-objects"]


def test_an_object_that_is_lost_does_not_draw_to_where_it_was_written(tmp_path: Path) -> None:
    source = FileSource(written(tmp_path / "locations.json", {SHARDS: {}}))
    done = PodPlacer(source, True, ClusterConfig()).place(pod(), [reference(SHARDS, "node-a", GIB)])
    assert done is not None
    assert hosts(done.pod) == []


def test_a_pod_is_never_bound_to_a_host_that_may_be_no_node(tmp_path: Path) -> None:
    here = [reference(SHARDS, "store-x7k2p", GIB)]
    done = PodPlacer(None, True, ClusterConfig()).place(pod(locality="required"), here)
    assert done is not None
    assert bound(done.pod) is None
    nodes = {"store-x7k2p": {"labels": {names.HOSTNAME: "store-x7k2p"}}}
    source = FileSource(written(tmp_path / "locations.json", {}, nodes=nodes))
    done = PodPlacer(source, True, ClusterConfig()).place(pod(locality="required"), here)
    assert done is not None
    assert bound(done.pod)["nodeSelectorTerms"][0]["matchExpressions"][0]["values"] == ["store-x7k2p"]


def test_locations_that_cannot_be_read_leave_the_pod_its_store(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "locations.json").write_text("{")
    source = FileSource(tmp_path / "locations.json")
    with caplog.at_level(logging.WARNING):
        done = PodPlacer(source, True, ClusterConfig()).place(pod(), [reference(SHARDS, "node-a", GIB)])
    assert done is not None
    assert hosts(done.pod) == [(100, "node-a")]
    assert done.pod["spec"]["containers"][0]["volumeMounts"][0]["mountPath"] == "/run/entrepot"
    assert "locations.json" in caplog.text


def test_only_an_invalid_hint_is_an_error(caplog: pytest.LogCaptureFixture) -> None:
    by = PodPlacer(None, True, ClusterConfig())
    with pytest.raises(InvalidArgument, match="'nearby'"):
        by.place(pod(locality="nearby"))
    newer = {"metadata": {"annotations": {names.INJECTED: '{"version": 99}'}}, "spec": {"containers": []}}
    with caplog.at_level(logging.WARNING):
        assert by.place(newer) is None
    assert "99" in caplog.text
    newer["metadata"]["annotations"][names.LOCALITY] = "preferred"  # type: ignore[index]
    with pytest.raises(VersionMismatch):
        by.place(newer)


def test_placing_again_follows_the_data(tmp_path: Path) -> None:
    file = written(tmp_path / "locations.json", {SHARDS: {"node-a": GIB}})
    by = PodPlacer(FileSource(file), False, ClusterConfig())
    first = by.place(pod(requires=SHARDS))
    assert first is not None
    written(tmp_path / "new.json", {SHARDS: {"node-b": GIB}}).rename(file)
    again = by.place(first.pod)
    assert again is not None
    assert (hosts(first.pod), hosts(again.pod)) == ([(100, "node-a")], [(100, "node-b")])
