"""A policy with an S3 target: checkpoints, catalog and pruning use the driver, with credentials from its options."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import entrepot
import numpy as np
import pytest
from entrepot import raw_objects
from entrepot_io.values import get_value, put_value
from entrepot_policy import PolicyError, PolicyRuntime, RerunNeeded, Task, parse_policy
from entrepot_policy.rules.validation import probe_targets


def runtime_of(store: entrepot.Store, target: Any) -> PolicyRuntime:
    options = json.dumps({**target.options, "secret": "${POLICY_TEST_SECRET}"})
    text = (
        f"version: 1\ntargets: {{deep: {{url: '{target.url}/{{run}}', options: {options}}}}}\n"
        "checkpoint: {target: deep, keep: 2, rules: [{match: '*'}]}\n"
    )
    return PolicyRuntime(parse_policy(text, "s3.yaml"), scope="tests", address=store.address)


def test_a_policy_on_s3(store: entrepot.Store, s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENTREPOT_EVENTS", str(tmp_path))
    with pytest.raises(PolicyError, match=r"s3\.yaml:2:\d+: .*POLICY_TEST_SECRET is not set, so the credentials"):
        runtime_of(store, s3)
    monkeypatch.setenv("POLICY_TEST_SECRET", "secret")
    runtime = runtime_of(store, s3)
    assert probe_targets(runtime.policy.all_targets()) == []
    references = []
    for number in range(3):
        session = runtime.session(f"run-{number}")
        with runtime.task(Task("kedro", "p", f"run-{number}", "one")) as task:
            value = np.arange(20_000) + number
            references.append(task.write(session, lambda: put_value(session, "node:one", value)))  # noqa: B023
        raw_objects.discard(session, references[-1].id)
    for number in (1, 2):
        reference = references[number]
        restored = runtime.read(reference, lambda: get_value(reference, address=store.address))  # noqa: B023
        assert (restored == np.arange(20_000) + number).all()
    with pytest.raises(RerunNeeded, match="not checkpointed"):
        runtime.read(references[0], lambda: get_value(references[0], address=store.address))
    report = runtime.run_ended(runtime.session("run-2"))
    assert report.problems == []
    assert report.swept == 1
