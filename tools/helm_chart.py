"""Generates the Helm chart's templates and CRDs from the manifests, so that both install the same.

    python tools/helm_chart.py            writes operator/chart/templates and operator/chart/crds
    python tools/helm_chart.py --check    reports what would change, and fails if anything would

Configurable parts are a list of replacements below; each one must match, and the replaced text must not remain.
"""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / name) for name in ("operator", "io_managers", "core/python")]

from entrepot_operator import install_manifests  # noqa: E402

CHART = ROOT / "operator" / "chart"
HEAD = "# Made by tools/helm_chart.py from operator/entrepot_operator/manifests/{name}: change it there.\n"
RELEASE = "{{ .Release.Namespace }}"
INSTALLATION = '{{ include "entrepot.installation" $ }}'
# Labels of objects and pods, but not selectors, which are immutable.
LABELS = re.compile(
    r"^( +)labels:\n\1  app\.kubernetes\.io/name: ([a-z-]+)\n\1  app\.kubernetes\.io/component: ([a-z]+)\n",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Change:
    """A replacement in a manifest's text.

    Attributes:
        old: the manifest's text; must occur exactly ``times`` times.
        new: the chart's text.
        times: number of occurrences.
    """

    old: str
    new: str
    times: int = 1


def _block(key: str, value: str, indent: int) -> str:
    """A key with the user's value, omitted if there is none."""
    pad = " " * indent
    lines = [
        f"{{{{- with .Values.{value} }}}}",
        f"{key}:",
        f"  {{{{- toYaml . | nindent {indent + 2} }}}}",
        "{{- end }}",
    ]
    return "".join(f"{pad}{line}\n" for line in lines)


_PORTS = '        args: [operator, --namespace, entrepot-system, --installation, entrepot, --webhook-port, "9443"]\n'
_ARGS = """\
        args:
        - operator
        - --namespace
        - {{ .Release.Namespace }}
        - --installation
        - {{ .Release.Name }}
        {{- if not .Values.gates.enabled }}
        - --no-gates
        {{- else }}
        {{- range .Values.podNamespaces }}
        - --gates-namespace
        - {{ . }}
        {{- end }}
        {{- end }}
        {{- if .Values.webhook.enabled }}
        - --webhook-port
        - "9443"
        {{- if .Values.webhook.certManager.enabled }}
        - --webhook-certificates
        - /certificates
        {{- end }}
        {{- if not .Values.webhook.mounts }}
        - --without-mounts
        {{- end }}
        {{- else }}
        - --no-webhook
        {{- end }}
        {{- with .Values.operator.extraArgs }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
"""
_RESOURCES = """\
          requests:
            cpu: 100m
            memory: 128Mi
          limits:
            memory: 512Mi
"""
_END_OF_CONTAINER = """\
          capabilities:
            drop: [ALL]
"""
_CERTIFICATES = """\
        {{- if and .Values.webhook.enabled .Values.webhook.certManager.enabled }}
        volumeMounts:
        - name: certificates
          mountPath: /certificates
          readOnly: true
      volumes:
      - name: certificates
        secret:
          secretName: entrepot-webhook-cert-manager
        {{- end }}
"""
_WEBHOOK_METADATA = """\
metadata:
  name: entrepot-webhook
"""
_WEBHOOK_ANNOTATIONS = """\
metadata:
  name: entrepot-webhook
  {{- if .Values.webhook.certManager.enabled }}
  annotations:
    cert-manager.io/inject-ca-from: {{ .Release.Namespace }}/entrepot-webhook
  {{- end }}
"""
_IN_NAMESPACES = "{key: kubernetes.io/metadata.name, operator: In, values: {{ toJson . }}}"
_LEFT_OUT = "    - {key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system, entrepot-system]}\n"
_ONLY_PODS_OF = f"""\
    {{{{- with .Values.podNamespaces }}}}
    - {_IN_NAMESPACES}
    {{{{- end }}}}
"""
_ANNOTATIONS_OF = f"""\
  matchConstraints:
    {{{{- with .Values.podNamespaces }}}}
    namespaceSelector:
      matchExpressions:
      - {_IN_NAMESPACES}
    {{{{- end }}}}
"""
_POD_LABELS = """\
    metadata:
      labels:
"""
_POD_ANNOTATIONS = f"""\
    metadata:
{_block("annotations", "operator.podAnnotations", 6)}      labels:
"""
_DEPLOYMENT_ANNOTATION = """\
  annotations:
    entrepot.dev/pod-namespaces: "*"
"""
# The namespaces whose pods this installation handles: lets another installation detect an overlap.
_POD_NAMESPACES = """\
  {{- if or .Values.gates.enabled .Values.webhook.enabled }}
  annotations:
    entrepot.dev/pod-namespaces: {{ join "," .Values.podNamespaces | default "*" | quote }}
  {{- end }}
"""
_SPREAD = """\
      affinity:
        podAntiAffinity:
          preferredDuringSchedulingIgnoredDuringExecution:
          - weight: 100
            podAffinityTerm:
              topologyKey: kubernetes.io/hostname
              labelSelector:
                matchLabels:
                  app.kubernetes.io/name: entrepot
                  app.kubernetes.io/component: operator
"""
_AFFINITY = f"""\
      {{{{- if .Values.operator.affinity }}}}
      affinity:
        {{{{- toYaml .Values.operator.affinity | nindent 8 }}}}
      {{{{- else }}}}
{_SPREAD}      {{{{- end }}}}
"""
_POD_IP = """\
              fieldPath: status.podIP
"""
_EXTRA_ENV = """\
        {{- with .Values.operator.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
"""
_ACCOUNT_ENDS = "automountServiceAccountToken: false\n"
_GATES_BINDING = """\
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: entrepot-gates
  labels:
    app.kubernetes.io/name: entrepot
    app.kubernetes.io/component: operator
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: entrepot-gates
subjects:
- kind: ServiceAccount
  name: entrepot-operator
  namespace: entrepot-system
"""


def _in_each_namespace(binding: str) -> str:
    """A cluster-wide binding, or one in each namespace that the values name."""
    template = binding.replace("ClusterRoleBinding", "RoleBinding").replace("entrepot-gates", INSTALLATION + "-gates")
    template = template.replace("\n  labels:", "\n  namespace: {{ . }}\n  labels:").replace(
        "entrepot-system", "{{ $.Release.Namespace }}"
    )
    return f"""\
{{{{- range .Values.podNamespaces }}}}
{template}{{{{- end }}}}
{{{{- if not .Values.podNamespaces }}}}
{binding}{{{{- end }}}}
"""


CHANGES: dict[str, list[Change]] = {
    "operator/deployment.yaml": [
        Change(_PORTS, _ARGS),
        Change(_DEPLOYMENT_ANNOTATION, _POD_NAMESPACES),
        Change(_POD_LABELS, _POD_ANNOTATIONS),
        Change(_SPREAD, _AFFINITY),
        Change(_POD_IP, _POD_IP + _EXTRA_ENV),
        Change("  replicas: 2\n", "  replicas: {{ .Values.operator.replicas }}\n"),
        Change(
            f"        image: {install_manifests.IMAGE}\n",
            '        image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"\n',
        ),
        Change("        imagePullPolicy: IfNotPresent\n", "        imagePullPolicy: {{ .Values.image.pullPolicy }}\n"),
        Change(
            "      serviceAccountName: entrepot-operator\n",
            "      serviceAccountName: entrepot-operator\n"
            + _block("imagePullSecrets", "image.pullSecrets", 6)
            + _block("nodeSelector", "operator.nodeSelector", 6)
            + _block("tolerations", "operator.tolerations", 6)
            + "      {{- with .Values.operator.priorityClassName }}\n"
            "      priorityClassName: {{ . }}\n"
            "      {{- end }}\n",
        ),
        Change(_RESOURCES, "          {{- toYaml .Values.operator.resources | nindent 10 }}\n"),
        Change(_END_OF_CONTAINER, _END_OF_CONTAINER + _CERTIFICATES),
    ],
    "operator/rbac.yaml": [
        Change(_ACCOUNT_ENDS, _block("annotations", "operator.serviceAccount.annotations", 2) + _ACCOUNT_ENDS),
    ],
    "publisher/rbac.yaml": [
        Change(_ACCOUNT_ENDS, _block("annotations", "publisher.serviceAccount.annotations", 2) + _ACCOUNT_ENDS),
    ],
    "gates/rbac.yaml": [Change(_GATES_BINDING, _in_each_namespace(_GATES_BINDING))],
    "webhook/annotations.yaml": [Change("  matchConstraints:\n", _ANNOTATIONS_OF)],
    "webhook/configuration.yaml": [
        Change(_WEBHOOK_METADATA, _WEBHOOK_ANNOTATIONS),
        Change(_LEFT_OUT, _LEFT_OUT + _ONLY_PODS_OF, times=2),
    ],
}
# Whole files that a release may omit.
CONDITIONS = {
    "gates/own-gate.yaml": ".Values.gates.enabled",
    "gates/rbac.yaml": ".Values.gates.enabled",
    "publisher/own-node.yaml": ".Values.policies.ownNode",
    "webhook/annotations.yaml": ".Values.policies.annotations",
    "webhook/configuration.yaml": ".Values.webhook.enabled",
    "webhook/rbac.yaml": ".Values.webhook.enabled",
    "webhook/service.yaml": ".Values.webhook.enabled",
}


def chart() -> dict[Path, str]:
    """All generated files, by their path in the chart.

    Raises:
        ValueError: a replacement does not match its manifest.
    """
    files: dict[Path, str] = {}
    used: set[str] = set()
    for path in install_manifests.files():
        name = path.relative_to(install_manifests.MANIFESTS).as_posix()
        text = path.read_text(encoding="utf-8")
        if name.startswith("namespace/"):
            continue  # covered by helm install --create-namespace
        if name.startswith("crds/"):
            files[Path(name)] = text
            continue
        used.add(name)
        files[Path("templates") / name.replace("/", "-")] = HEAD.format(name=name) + _template(name, text)
    missing = (CHANGES.keys() | CONDITIONS.keys()) - used
    if missing:
        raise ValueError(f"manifest {sorted(missing)[0]} not found")
    return files


def _template(name: str, text: str) -> str:
    if "{{" in text:
        raise ValueError(f"{name} contains {{{{, which Helm would interpret")
    for change in CHANGES.get(name, []):
        occurrences = text.count(change.old)
        if occurrences != change.times:
            raise ValueError(f"{name}: expected {change.times} occurrences, found {occurrences}, of:\n{change.old}")
        text = text.replace(change.old, change.new)
    lines = [
        line if line.startswith("#") else line.replace(install_manifests.NAMESPACE, RELEASE)
        for line in text.splitlines(True)
    ]
    text = LABELS.sub(_labels, install_manifests.rename_cluster_scoped("".join(lines), INSTALLATION))
    condition = CONDITIONS.get(name)
    return f"{{{{- if {condition} }}}}\n{text}{{{{- end }}}}\n" if condition else text


def _labels(match: re.Match[str]) -> str:
    pad, name, component = match.groups()
    given = f'dict "root" $ "name" "{name}" "component" "{component}"'
    return f'{pad}labels:\n{pad}  {{{{- include "entrepot.labels" ({given}) | nindent {len(pad) + 2} }}}}\n'


def main() -> int:
    """Write the files, or list those that differ."""
    parser = argparse.ArgumentParser(description="Generate the Helm chart from the manifests.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if any file would change")
    arguments = parser.parse_args()
    expected = chart()
    existing = {
        path.relative_to(CHART)
        for path in [*CHART.glob("crds/*"), *CHART.glob("templates/*")]
        if path.parent.name == "crds" or path.read_text(encoding="utf-8").startswith(HEAD[:32])
    }
    wrong = sorted(str(path) for path in existing - expected.keys())
    for path, text in expected.items():
        place = CHART / path
        if not place.is_file() or place.read_text(encoding="utf-8") != text:
            wrong.append(str(path))
            if not arguments.check:
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(text, encoding="utf-8")
    if not arguments.check:
        for path in existing - expected.keys():
            (CHART / path).unlink()
    for name in wrong:
        print(f"{'differs' if arguments.check else 'written'}: operator/chart/{name}")
    return 1 if wrong and arguments.check else 0


if __name__ == "__main__":
    sys.exit(main())
