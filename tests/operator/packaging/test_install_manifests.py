"""The manifests: a single list for kustomize, ``entrepot manifests`` and the chart."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from entrepot.cli import main
from entrepot.errors import InvalidArgument
from entrepot_operator import crds, install_manifests
from entrepot_operator.placement.names import CONTAINERS, LOCALITY, MOUNTS, PARTITIONED, REQUIRES, STORE
from entrepot_operator.placement.pod_annotations import parse_annotations
from entrepot_operator.webhook.settings import PATH, PATH_WITHOUT_MOUNTS, PORT, Settings

ROOT = Path(__file__).resolve().parents[3]


def listed(**changes: Any) -> list[Any]:
    return [manifest for manifest in yaml.safe_load_all(install_manifests.text(**changes)) if manifest]


def one_of(kind: str, name: str) -> Any:
    (match,) = [each for each in listed() if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return match


def test_every_manifest_is_in_it_once() -> None:
    existing = {path for path in install_manifests.MANIFESTS.rglob("*.yaml") if path.name != "kustomization.yaml"}
    assert sorted(install_manifests.files()) == sorted(existing)
    names = [(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in listed()]
    assert len(names) == len(set(names))
    assert install_manifests.text(only="crds").count("kind: CustomResourceDefinition") == crds.text().count(
        "kind: CustomResourceDefinition"
    )


def test_ruamel_reads_them_as_kubernetes_does() -> None:
    assert install_manifests.objects() == listed()


def test_namespace_and_image_are_those_that_are_wanted() -> None:
    manifests = listed(namespace="stores", image="registry.example:5000/team/entrepot@sha256:00ff")
    assert {each["metadata"]["namespace"] for each in manifests if "namespace" in each["metadata"]} == {"stores"}
    assert install_manifests.NAMESPACE not in str(manifests)
    assert "registry.example:5000/team/entrepot@sha256:00ff" in str(manifests)


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"namespace": "Stores"}, "lower-case"),
        ({"namespace": "a: b"}, "lower-case"),
        ({"image": "x\ny"}, "the image must be"),
        ({"only": "everything"}, "crds, gates, gateway, namespace"),
    ],
)
def test_what_kubernetes_would_not_take_is_refused(wrong: Any, match: str) -> None:
    with pytest.raises(InvalidArgument, match=match):
        install_manifests.text(**wrong)


def test_the_command_prints_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["manifests", "--namespace", "stores", "--only", "webhook"]) == 0
    assert capsys.readouterr().out == install_manifests.text(namespace="stores", only="webhook")


def test_the_image_has_the_version_of_the_project() -> None:
    version = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert version is not None
    assert f"entrepot:{version[1]}" == install_manifests.IMAGE
    assert install_manifests.IMAGE in (ROOT / "operator" / "Containerfile").read_text()


def test_manifests_and_program_agree() -> None:
    settings = Settings(install_manifests.NAMESPACE)
    configuration = one_of("MutatingWebhookConfiguration", settings.configuration)
    service = one_of("Service", settings.service)
    assert one_of("Secret", settings.secret)["metadata"]["namespace"] == settings.namespace
    paths = [each["clientConfig"]["service"]["path"] for each in configuration["webhooks"]]
    assert paths == [PATH, PATH_WITHOUT_MOUNTS]
    for each in configuration["webhooks"]:
        webhook_service = each["clientConfig"]["service"]
        assert (webhook_service["name"], webhook_service["namespace"]) == (settings.service, settings.namespace)
        assert (each["failurePolicy"], each["reinvocationPolicy"], each["timeoutSeconds"]) == ("Ignore", "IfNeeded", 2)
        assert settings.deadline < each["timeoutSeconds"]
        for key in (REQUIRES, PARTITIONED, LOCALITY, STORE, MOUNTS, CONTAINERS):
            assert f"'{key}'" in each["matchConditions"][0]["expression"]
    container = one_of("Deployment", "entrepot-operator")["spec"]["template"]["spec"]["containers"][0]
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert ports["webhook"] == PORT
    assert service["spec"]["ports"][0]["targetPort"] == "webhook"
    labels = one_of("Deployment", "entrepot-operator")["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"] == labels


def test_each_namespace_is_asked_for_by_one_of_the_two() -> None:
    first, second = one_of("MutatingWebhookConfiguration", "entrepot-webhook")["webhooks"]
    level = "pod-security.kubernetes.io/enforce"
    expressions = [
        {each["key"]: each for each in webhook["namespaceSelector"]["matchExpressions"]} for webhook in (first, second)
    ]
    assert expressions[0][level]["values"] == expressions[1][level]["values"]
    assert (expressions[0].pop(level)["operator"], expressions[1].pop(level)["operator"]) == ("NotIn", "In")
    assert expressions[0] == expressions[1]
    for key in ("rules", "objectSelector", "matchConditions", "sideEffects"):
        assert first[key] == second[key]


@pytest.mark.parametrize(
    ("key", "value"),
    [(LOCALITY, "always"), (STORE, "x"), (MOUNTS, "1"), (REQUIRES, "x"), (PARTITIONED, "x")],
)
def test_the_policy_is_about_what_the_program_refuses(key: str, value: str) -> None:
    with pytest.raises(InvalidArgument, match=value):
        parse_annotations({key: value})
    assert f"'{key}'" in str(one_of("ValidatingAdmissionPolicy", "entrepot-annotations")["spec"])


def test_the_operator_has_no_rights_on_its_node() -> None:
    spec = one_of("Deployment", "entrepot-operator")["spec"]["template"]["spec"]
    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = spec["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["resources"]["limits"]["memory"]
    assert not any(key in spec for key in ("hostNetwork", "hostPID", "hostIPC", "volumes"))


def test_kustomize_makes_the_same() -> None:
    try:
        done = subprocess.run(
            ["kubectl", "kustomize", str(install_manifests.MANIFESTS)], capture_output=True, text=True, timeout=60
        )
    except FileNotFoundError:
        pytest.skip("no kubectl here; its kustomize is one of two ways to the same list")
    assert done.returncode == 0, done.stderr
    manifests = [manifest for manifest in yaml.safe_load_all(done.stdout) if manifest]
    assert sorted(map(str, map(_ordered, manifests))) == sorted(map(str, map(_ordered, listed())))


def _ordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _ordered(value[key]) for key in sorted(value)}
    return [_ordered(item) for item in value] if isinstance(value, list) else value
