"""``entrepot inject``: files, standard input, stores, explanations, bad input."""

from __future__ import annotations

import io
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import entrepot
import pytest
import yaml
from entrepot.cli import main

A, B = "aa" * 20, "bb" * 20
Run = Callable[..., "subprocess.CompletedProcess[str]"]

MANIFEST = f"""\
# The whole pipeline.
apiVersion: v1
kind: Service
metadata: {{name: web}}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  template:
    metadata:
      annotations:
        entrepot.dev/requires: {A}
    spec:
      containers:
      - name: main  # the one
---
apiVersion: batch/v1
kind: CronJob
metadata:
  name: nightly
spec:
  jobTemplate:
    spec:
      completionMode: Indexed
      completions: 2
      template:
        metadata:
          annotations:
            entrepot.dev/partitioned: {A},{B}
        spec:
          containers:
          - name: main
"""


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Run:
    """``cli(*words, code=0)``: run ``entrepot inject``; the test fails if the exit code is not ``code``."""

    def run(*arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
        words = ["inject", *map(str, arguments)]
        capsys.readouterr()
        returned = main(words)
        captured = capsys.readouterr()
        assert returned == code, captured.err
        return subprocess.CompletedProcess(words, returned, captured.out, captured.err)

    return run


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    """File with the manifest."""
    path = tmp_path / "pipeline.yaml"
    path.write_text(MANIFEST)
    return path


@pytest.fixture
def locations(tmp_path: Path) -> Path:
    """File with locations."""
    path = tmp_path / "locations.json"
    path.write_text(json.dumps({A: {"n1": 1000, "n2": "1Ki"}, B: {"n3": 5}}))
    return path


def hosts(pod: dict[str, Any]) -> dict[str, int]:
    preferred = pod["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    return {
        value: term["weight"]
        for term in preferred
        for expression in term["preference"]["matchExpressions"]
        if expression["key"] == "kubernetes.io/hostname"
        for value in expression["values"]
    }


def test_a_file_offline(cli: Run, manifest: Path, locations: Path) -> None:
    done = cli("-f", manifest, "--locations", locations)
    service, deployment, cron = yaml.safe_load_all(done.stdout)
    assert service == next(iter(yaml.safe_load_all(MANIFEST)))
    assert hosts(deployment["spec"]["template"]) == {"n2": 100, "n1": 98}
    pod = cron["spec"]["jobTemplate"]["spec"]["template"]
    assert hosts(pod) == {"n2": 100, "n1": 98, "n3": 1}
    assert pod["metadata"]["annotations"]["entrepot.dev/partitions"] == "2"
    kept = [line for line in MANIFEST.splitlines() if line not in done.stdout.splitlines()]
    assert kept == []
    assert done.stderr == ""


def test_standard_input_twice_is_once(
    cli: Run, locations: Path, monkeypatch: pytest.MonkeyPatch, manifest: Path
) -> None:
    once = cli("-f", manifest, "--locations", locations).stdout
    monkeypatch.setattr("sys.stdin", io.StringIO(once))
    assert cli("-f", "-", "--locations", locations).stdout == once


def test_json(cli: Run, manifest: Path, locations: Path) -> None:
    as_json = json.loads(cli("-f", manifest, "--locations", locations, "-o", "json").stdout)
    as_yaml = list(yaml.safe_load_all(cli("-f", manifest, "--locations", locations, "-o", "yaml").stdout))
    assert (as_json["kind"], as_json["items"]) == ("List", as_yaml)


def test_several_files(cli: Run, tmp_path: Path, locations: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(f"kind: Pod\nmetadata: {{name: {name}}}\nspec: {{containers: [{{name: x}}]}}")
    done = cli("-f", tmp_path / "a", "-f", tmp_path / "b", "--locations", locations, "--require", f"{A},{B}")
    assert [document["metadata"]["name"] for document in yaml.safe_load_all(done.stdout)] == ["a", "b"]
    assert all(hosts(document) for document in yaml.safe_load_all(done.stdout))


def test_explain_says_where_each_pod_goes(cli: Run, manifest: Path, locations: Path) -> None:
    explanation = cli("-f", manifest, "--locations", locations, "--explain").stderr
    assert explanation.splitlines()[:4] == [
        "Deployment/web",
        "  reads 1 object, 1 located: 2.0 KiB",
        "  host n2: 1.0 KiB, weight 100",
        "  host n1: 1000 B, weight 98",
    ]
    assert "  pod 0: 2.0 KiB, most of it on n2\n  pod 1: 5 B, most of it on n3\n" in explanation + "\n"


def test_nodes_of_the_file_give_zones_and_exclude(cli: Run, manifest: Path, tmp_path: Path) -> None:
    zone = {"topology.kubernetes.io/zone": "east", "kubernetes.io/hostname": "n1"}
    places = {"version": 1, "objects": {A: {"n1": 10, "n2": 9}, B: {}}, "nodes": {"n1": {"labels": zone}}}
    path = tmp_path / "places.yaml"
    path.write_text(yaml.safe_dump(places))
    done = cli("-f", manifest, "--locations", path)
    assert "entrepot: Deployment/web: inputs are reported on nodes that are gone: n2" in done.stderr
    assert "topology.kubernetes.io/zone" in done.stdout
    refused = cli("-f", manifest, "--locations", path, "--strict", code=1)
    assert refused.stdout == ""
    assert refused.stderr.startswith("entrepot: Deployment/web: ")


def test_only_one_workload(cli: Run, manifest: Path, locations: Path) -> None:
    done = cli("-f", manifest, "--locations", locations, "--only", "deployment/web").stdout
    assert done.count("entrepot.dev/injected") == 1
    refused = cli("-f", manifest, "--locations", locations, "--only", "Job/none", code=1)
    assert "Job/none" in refused.stderr


def test_the_site_is_an_option(cli: Run, manifest: Path, locations: Path) -> None:
    done = cli("-f", manifest, "--locations", locations, "--socket-folder", "/srv/e", "--shared-memory", "none").stdout
    assert "unix:///srv/e/store.sock" in done
    assert "/dev/shm" not in done
    assert 'sizeLimit: "2Gi"' in cli("-f", manifest, "--locations", locations, "--shared-memory", "2Gi").stdout


def test_the_store_knows_what_it_holds(cli: Run, module_daemon: Any, tmp_path: Path) -> None:
    pod = tmp_path / "pod.yaml"
    pod.write_text("kind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: x}]}\n")
    words = ("--address", module_daemon.address, "--scope", "tests", "--session", "inject")
    with entrepot.connect(module_daemon.address, scope="tests", session="inject") as store:
        oid = store.put(bytes(5000), name="table")
        builder = store.collection("parts")
        for index in range(2):
            builder.put(bytes(20_000 + index), index=index)
        members = builder.seal().ids
    injected = yaml.safe_load(cli("-f", pod, *words, "--require", "table", "--node", "n7").stdout)
    assert hosts(injected) == {"n7": 100}
    assert injected["metadata"]["annotations"]["entrepot.dev/requires"] == str(oid)
    whole = cli("-f", pod, *words, "--require", "parts", "--node", "n7", "--explain")
    assert "reads 1 object, 1 located: 39.1 KiB" in whole.stderr
    job = tmp_path / "job.yaml"
    job.write_text(
        "kind: Job\nmetadata: {name: j}\nspec:\n  completionMode: Indexed\n  completions: 2\n"
        "  template:\n    spec:\n      containers:\n      - name: x\n"
    )
    dealt = yaml.safe_load(cli("-f", job, *words, "--partitioned", "parts", "--node", "n7").stdout)
    annotations = dealt["spec"]["template"]["metadata"]["annotations"]
    assert annotations["entrepot.dev/partitioned"] == ",".join(map(str, members))
    assert B in cli("-f", pod, *words, "--require", B).stderr
    places = tmp_path / "places.json"
    places.write_text(json.dumps({str(oid): {"n8": 10_000}}))
    both = cli("-f", pod, *words, "--require", "table", "--node", "n7", "--locations", places, "--from-store")
    assert hosts(yaml.safe_load(both.stdout)) == {"n8": 100, "n7": 50}
    unknown = cli("-f", pod, *words, "--require", "no-such-name", code=1)
    assert "no-such-name" in unknown.stderr


def test_without_objects_no_store_is_needed(cli: Run, tmp_path: Path) -> None:
    pod = tmp_path / "pod.yaml"
    pod.write_text("kind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: x}]}\n")
    assert "ENTREPOT_ADDRESS" in cli("-f", pod, "--address", f"unix://{tmp_path}/none").stdout
    refused = cli("-f", pod, "--address", f"unix://{tmp_path}/none", "--require", A, code=1)
    assert "no store listens" in refused.stderr


def test_a_file_without_pods_is_reported(cli: Run, tmp_path: Path) -> None:
    service = tmp_path / "service.yaml"
    service.write_text("kind:   Service  # nothing to do\n")
    done = cli("-f", service)
    assert done.stdout == service.read_text()
    assert "no pod" in done.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a\n- b\n", "document 1 is a list"),
        ("kind: Deployment\nmetadata: {name: web}\n", "Deployment/web"),
        ("a: [", "line 1"),
        (b"\xff\xfe", "cannot read"),
    ],
)
def test_a_manifest_that_is_none(cli: Run, tmp_path: Path, locations: Path, text: str | bytes, message: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    refused = cli("-f", path, "--locations", locations, code=1)
    assert (refused.stdout, message in refused.stderr) == ("", True), refused.stderr


@pytest.mark.parametrize(
    ("places", "message"),
    [
        ("[]", "single mapping"),
        ("{}\n---\n{}", "single mapping"),
        ("orders: {n1: 5}", "40 hexadecimal digits"),
        (f"{A}: 5", "mapping"),
        (f"{A}: {{n1: much}}", "'much'"),
        (f"{A}: {{n1: -5}}", "-5"),
        ("version: 2", "version 2"),
        ("version: x", "'x'"),
        ("objects: {}\nnode: {}", "unknown key 'node'"),
        ("nodes: {n1: {label: {}}}", "unknown key 'label'"),
        ("nodes: {n1: {labels: {a: 1}}}", "label a"),
        ("nodes: {n1: {taints: x}}", "taints"),
        ("nodes: {n1: {unschedulable: maybe}}", "'maybe'"),
    ],
)
def test_locations_that_are_none(cli: Run, manifest: Path, tmp_path: Path, places: str, message: str) -> None:
    path = tmp_path / "places.yaml"
    path.write_text(places)
    refused = cli("-f", manifest, "--locations", path, code=1)
    assert (refused.stdout, message in refused.stderr) == ("", True), refused.stderr
    assert "places.yaml" in refused.stderr


def test_options_that_cannot_be(cli: Run, manifest: Path, locations: Path, tmp_path: Path) -> None:
    assert "standard input" in cli("-f", "-", "-f", "-", code=1).stderr
    assert "cannot read" in cli("-f", tmp_path / "none.yaml", code=1).stderr
    assert "'run'" in cli("-f", manifest, "--locations", locations, "--socket-folder", "run", code=1).stderr
    many = ",".join(f"{place:040x}" for place in range(4000))
    assert "collection" in cli("-f", manifest, "--locations", locations, "--require", many, code=1).stderr
