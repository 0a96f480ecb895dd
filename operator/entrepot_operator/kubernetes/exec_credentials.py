"""Credential plugins (``exec`` in a kubeconfig), as used by cloud providers."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from entrepot.errors import InvalidArgument

PLUGIN_SECONDS = 60.0
_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
_KEYS = frozenset({"command", "args", "env", "apiVersion", "installHint", "provideClusterInfo", "interactiveMode"})


@dataclass(frozen=True)
class Given:
    """Credentials printed by a plugin.

    Attributes:
        token: bearer token; None: only a certificate.
        certificate: PEM of certificate and key; None: only a token.
        ends: when they expire; None: not stated.
    """

    token: str | None = field(default=None, repr=False)
    certificate: tuple[str, str] | None = field(default=None, repr=False)
    ends: datetime | None = None

    @property
    def is_over(self) -> bool:
        """Whether the credentials have expired."""
        return self.ends is not None and datetime.now(timezone.utc) >= self.ends


def check_plugin(plugin: Any, where: str) -> dict[str, Any]:
    """Validate the mapping under ``exec``.

    Args:
        plugin: the mapping.
        where: the file, for messages.

    Raises:
        InvalidArgument: no command, an unsupported interface version, a program that needs a terminal, or an unknown
            entry.
    """
    if not isinstance(plugin, dict) or not isinstance(plugin.get("command"), str) or not plugin["command"]:
        raise InvalidArgument(f"{where}: a user's exec must be a mapping with a command")
    unknown = sorted(str(key) for key, value in plugin.items() if key not in _KEYS and value)
    if unknown:
        raise InvalidArgument(f"{where}: {', '.join(unknown)} under a user's exec is not supported")
    version = plugin.get("apiVersion") or _VERSIONS[0]
    if version not in _VERSIONS:
        raise InvalidArgument(
            f"{where}: a user's exec has apiVersion {version!r}; supported are {' and '.join(_VERSIONS)}"
        )
    if plugin.get("interactiveMode") == "Always":
        raise InvalidArgument(f"{where}: a user's exec has interactiveMode Always, but no terminal is available")
    for pair in plugin.get("env") or []:
        if not isinstance(pair, dict) or not {"name", "value"} <= pair.keys():
            raise InvalidArgument(f"{where}: env under a user's exec must be a list of pairs of name and value")
    return plugin


def run_plugin(plugin: Mapping[str, Any], server: str, cluster: Mapping[str, Any] | None = None) -> Given:
    """Run the plugin and return the token, the client certificate, or both that it prints.

    Args:
        plugin: the mapping under ``exec``.
        server: for messages.
        cluster: what the plugin is told about the cluster if ``provideClusterInfo`` is set.

    Raises:
        InvalidArgument: it cannot be run, failed, or printed no credentials.
    """
    command = [str(plugin.get("command") or ""), *(str(argument) for argument in plugin.get("args") or [])]
    environment = dict(os.environ)
    for pair in plugin.get("env") or []:
        environment[str(pair["name"])] = str(pair["value"])
    spec: dict[str, Any] = {"interactive": False}
    if plugin.get("provideClusterInfo"):
        spec["cluster"] = dict(cluster or {"server": server})
    version = plugin.get("apiVersion") or _VERSIONS[0]
    environment["KUBERNETES_EXEC_INFO"] = json.dumps({"apiVersion": version, "kind": "ExecCredential", "spec": spec})
    begin = f"the kubeconfig's credential plugin for {server}, {command[0]!r},"
    try:
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=PLUGIN_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        hint = f"; {plugin['installHint']}" if plugin.get("installHint") and isinstance(error, OSError) else ""
        raise InvalidArgument(f"{begin} cannot be run: {error}{hint}") from error
    if done.returncode != 0:
        error_output = done.stderr.decode("utf-8", "replace").strip()[-500:]
        raise InvalidArgument(f"{begin} exited with code {done.returncode}: {error_output}")
    try:
        status = json.loads(done.stdout).get("status") or {}
        token, pair = status.get("token"), (status.get("clientCertificateData"), status.get("clientKeyData"))
        ends = status.get("expirationTimestamp")
    except (ValueError, AttributeError) as error:
        raise InvalidArgument(f"{begin} printed no credentials: its output is not an ExecCredential in JSON") from error
    if bool(pair[0]) != bool(pair[1]):
        missing = "clientKeyData" if pair[0] else "clientCertificateData"
        raise InvalidArgument(f"{begin} printed an incomplete client certificate: {missing} is missing")
    if not token and not pair[0]:
        raise InvalidArgument(f"{begin} printed no token and no client certificate")
    certificate = (str(pair[0]), str(pair[1])) if pair[0] else None
    return Given(str(token) if token else None, certificate, _time(ends, begin))


def _time(value: Any, begin: str) -> datetime | None:
    if not value:
        return None
    try:
        return datetime.fromisoformat(str(value).replace("Z", "+00:00")).astimezone(timezone.utc)
    except ValueError as error:
        raise InvalidArgument(f"{begin} printed an invalid expirationTimestamp: {value!r}") from error
