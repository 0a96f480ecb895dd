"""``entrepot publish`` on the command line, and the order in which it writes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import entrepot
import numpy as np
import pytest
from entrepot.cli import main
from entrepot.ids import ObjectID
from entrepot_operator import commands
from entrepot_operator.kubernetes.objects import Condition, GlobalObject, LocalObject
from entrepot_operator.publisher.diff import plan_writes
from entrepot_operator.publisher.limits import Limits


def test_a_dry_run_prints_and_asks_no_cluster(daemon: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with entrepot.connect(daemon.address) as store:
        oid = store.put(b"1", name="one")
    assert main(["publish", "--dry-run", "--node", "n", "--address", daemon.address]) == 0
    (item,) = json.loads(capsys.readouterr().out)["items"]
    assert (item["kind"], item["spec"]["objectID"], item["spec"]["node"]) == ("LocalObject", str(oid), "n")


def test_once_publishes_and_ends(
    daemon: Any, server: Any, kubeconfig: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENTREPOT_NODE", "node-a")
    with entrepot.connect(daemon.address) as store:
        store.put(np.zeros(10_000), name="large")
        store.put(b"1", name="small")
    words = ["publish", "--once", "--address", daemon.address, "--kubeconfig", str(kubeconfig), "--min-bytes", "1000"]
    assert main([*words, "--store", "main"]) == 0
    assert "1 resources in stores, 0 refused, 1 left out" in capsys.readouterr().out
    (resource,) = server.of("localobjects").values()
    assert (resource["spec"]["names"], resource["spec"]["store"]) == (["large"], "main")


def test_it_runs_until_it_is_ended(daemon: Any, server: Any, kubeconfig: Path, wait_until: Callable[..., None]) -> None:
    command = [sys.executable, "-m", "entrepot.cli", "publish", "--node", "node-a", "--address", daemon.address]
    running = subprocess.Popen([*command, "--kubeconfig", str(kubeconfig), "--interval", "0.1"])
    try:
        with entrepot.connect(daemon.address) as store:
            store.put(b"1", name="one")
            wait_until(lambda: server.of("localobjects"), "the first object")
            store.put(b"2", name="two")
            wait_until(lambda: len(server.of("localobjects")) == 2, "the second object")
    finally:
        running.send_signal(signal.SIGTERM)
        assert running.wait(20) == 0
    assert len(server.of("localobjects")) == 2


@pytest.mark.parametrize(
    ("words", "match"),
    [
        ([], "unknown node"),
        (["--node", "n", "--store", "Not A Name"], "lower-case"),
        (["--node", "n", "--max-objects", "0"], "max_objects must be between 1 and 10000"),
        (["--node", "n", "--kubeconfig", "/nowhere/config"], "no cluster configured"),
        (["--node", "n", "--dry-run", "--address", "unix:///nowhere/store.sock"], "no store listens"),
    ],
)
def test_bad_input_is_reported(words: list[str], match: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["publish", *words]) == 1
    assert match in capsys.readouterr().err


def local(number: int, count: int, **changes: Any) -> LocalObject:
    given: dict[str, Any] = {"state": "InMemory", "available": Condition("Available", True, "InMemory", "")}
    oid = ObjectID(f"{number:040x}")
    return LocalObject(oid, "n", "s", "l", "0f" * 16, 1, count, "d", "", **{**given, **changes})


def by_name(*objects: LocalObject | GlobalObject) -> dict[str, Any]:
    return {item.name: item for item in objects}


def test_the_plan_of_no_difference_is_empty() -> None:
    assert plan_writes(by_name(local(1, 5)), by_name(local(1, 5))) == []
    later = Condition("Available", True, "InMemory", "").with_transition_time(None, datetime.now(timezone.utc))
    assert plan_writes(by_name(local(1, 5)), by_name(local(1, 5, available=later))) == []


def test_the_plan_has_the_largest_first_and_removals_between() -> None:
    desired = by_name(local(1, 5), local(2, 50), local(3, 500), local(9, 1, state="OnDisk"))
    published = by_name(local(4, 7), local(5, 70), local(9, 1))
    steps = [(step.operation, step.target.bytes) for step in plan_writes(desired, published)]
    assert steps == [
        ("apply", 500),
        ("drop", 70),
        ("apply", 50),
        ("drop", 7),
        ("apply", 5),
        ("status", 1),
    ]


def test_limits_out_of_range_are_refused() -> None:
    for wrong in ({"max_objects": 10_001}, {"writes_per_second": 0}, {"lease_seconds": 5}, {"min_bytes": -1}):
        with pytest.raises(entrepot.InvalidArgument, match=next(iter(wrong))):
            Limits(**wrong)


def test_the_former_entry_point_still_works_and_warns() -> None:
    with pytest.warns(
        DeprecationWarning,
        match=r"entrepot_operator\.commands\.add_verbs .*entrepot_operator\.commands\.add_subcommands",
    ):
        former = getattr(commands, "add_verbs")  # noqa: B009
    assert former is commands.add_subcommands


def test_the_subcommands_import_nothing_at_start() -> None:
    code = "import sys, entrepot.cli; entrepot.cli.build_parser(); print('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    loaded = done.stdout.split()
    assert "entrepot_operator.commands" in loaded
    heavy = (
        "entrepot_operator.placement.injection",
        "entrepot_operator.kubernetes",
        "entrepot_operator.publisher",
        "http.client",
    )
    assert not [name for name in loaded if name.startswith(heavy)]
