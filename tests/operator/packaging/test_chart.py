"""The Helm chart is generated from the manifests, and its values are validated."""

from __future__ import annotations

import copy
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from entrepot_operator import install_manifests

ROOT = Path(__file__).resolve().parents[3]
CHART = ROOT / "operator" / "chart"
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())


def test_the_chart_is_what_the_tool_makes_of_the_manifests() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "helm_chart.py"), "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, f"run tools/helm_chart.py:\n{done.stdout}{done.stderr}"


def test_the_crds_are_the_same_files() -> None:
    for path in (install_manifests.MANIFESTS / "crds").glob("*.yaml"):
        if path.name != "kustomization.yaml":
            assert (CHART / "crds" / path.name).read_bytes() == path.read_bytes()


def test_versions_are_those_of_the_project() -> None:
    metadata = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert f"entrepot:{metadata['appVersion']}" == install_manifests.IMAGE
    assert metadata["version"] == metadata["appVersion"]


def test_the_default_values_fit_their_schema() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    jsonschema.validate(VALUES, SCHEMA)


@pytest.mark.parametrize(
    "changes",
    [
        {"unknown": 1},
        {"image": {"repository": ""}},
        {"image": {"repository": "x", "pullPolicy": "Sometimes"}},
        {"operator": {"replicas": 0}},
        {"operator": {"replicas": "2"}},
        {"operator": {"extraArgs": "--x"}},
        {"webhook": {"enabled": "yes"}},
        {"webhook": {"certManager": {"enabled": True}}},
        {"webhook": {"certManager": {"enabled": True, "issuerRef": {"name": ""}}}},
        {"policies": {"annotations": "on"}},
        {"store": {"name": "Not A Name"}},
    ],
)
def test_wrong_values_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**copy.deepcopy(VALUES), **changes}, SCHEMA)


def test_each_value_that_a_template_asks_for_has_a_default_and_a_schema() -> None:
    paths = {
        value
        for path in (CHART / "templates").iterdir()
        for value in re.findall(r"\.Values\.([A-Za-z.]+)", path.read_text())
    }
    assert paths
    for name in paths:
        values, schema = VALUES, SCHEMA
        for step in name.split("."):
            assert step in values, name
            assert step in schema["properties"], name
            values, schema = values[step], schema["properties"][step]
            if "$ref" in schema:
                schema = SCHEMA["definitions"][schema["$ref"].rpartition("/")[2]]
