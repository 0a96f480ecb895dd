"""The container that serves a store's metrics: what the operator writes, and its command line beside a real store."""

from __future__ import annotations

import re
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from typing import Any

import entrepot
import pytest
from entrepot.errors import InvalidArgument
from entrepot_operator.controller.state import owned_resources
from entrepot_operator.kubernetes.store_spec import MetricsSpec, parse_store
from prometheus_client.parser import text_string_to_metric_families

BOUNDED = {"", "host,id,version"}  # labels of any metric, none of which depends on what is stored


def containers_of(store: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The containers of a store's pod, by name."""
    manifest = owned_resources.daemonset(store, parse_store(store)).manifest
    return {each["name"]: each for each in manifest["spec"]["template"]["spec"]["containers"]}


def test_a_store_has_metrics_if_it_asks_for_them(make_store: Callable[..., Any]) -> None:
    assert set(containers_of(make_store())) == {"daemon", "publisher"}
    assert parse_store(make_store(metrics={})).metrics == MetricsSpec()
    containers = containers_of(make_store(metrics={"port": 9900, "memory": "128Mi"}))
    metrics = containers["metrics"]
    assert metrics["command"] == ["entrepot", "metrics"]
    assert metrics["args"] == ["--listen=$(POD_IP):9900"]
    assert metrics["ports"] == [{"name": "metrics", "containerPort": 9900, "protocol": "TCP"}]
    assert metrics["resources"]["limits"] == {"memory": str(128 << 20)}
    assert metrics["securityContext"] == containers["daemon"]["securityContext"]
    assert [mount["name"] for mount in metrics["volumeMounts"]] == ["socket", "temporary"]  # and no token
    assert all(mount.get("readOnly") for mount in metrics["volumeMounts"] if mount["name"] == "socket")


def test_bad_settings_are_named(make_store: Callable[..., Any]) -> None:
    with pytest.raises(InvalidArgument, match=r"metrics\.memory must be a quantity"):
        containers_of(make_store(metrics={"memory": "much"}))
    with pytest.raises(InvalidArgument, match="metrics has 'prot', which this version of entrepot does not support"):
        parse_store(make_store(metrics={"prot": 1}))


def test_its_command_serves_the_metrics_of_the_pods_store(make_store: Callable[..., Any], daemon: Any) -> None:
    metrics = containers_of(make_store(metrics={}))["metrics"]
    variables = {"POD_IP": "127.0.0.1", "ENTREPOT_ADDRESS": daemon.address}
    assert variables.keys() <= {each["name"] for each in metrics["env"]}
    arguments = [each.replace("$(POD_IP):9817", "127.0.0.1:0") for each in metrics["args"]]
    with entrepot.connect(daemon.address) as store:
        store.put(b"value", name="orders-of-may")
        command = [sys.executable, "-m", *metrics["command"], *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=variables)
        try:
            assert process.stdout is not None
            match = re.search(r"http://127\.0\.0\.1:\d+/metrics", process.stdout.readline())
            assert match is not None
            with urllib.request.urlopen(match[0], timeout=30) as response:
                text = response.read().decode()
        finally:
            process.terminate()
            process.wait(30)
            if process.stdout is not None:
                process.stdout.close()
    families = list(text_string_to_metric_families(text))
    samples = {sample.name: sample.value for family in families for sample in family.samples}
    assert (samples["entrepot_up"], samples["entrepot_objects"]) == (1, 1)
    assert {",".join(sorted(sample.labels)) for family in families for sample in family.samples} <= BOUNDED
    assert "orders-of-may" not in text
