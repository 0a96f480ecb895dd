"""Kubeconfig files, to the extent that a program without a terminal can use them."""

from __future__ import annotations

import atexit
import base64
import os
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from entrepot.errors import InvalidArgument

from entrepot_operator.kubernetes import impersonation, proxies
from entrepot_operator.kubernetes.cluster_credentials import ClusterCredentials, decoded
from entrepot_operator.kubernetes.exec_credentials import check_plugin
from entrepot_operator.placement.formats import manifests

# The supported part of kubeconfig version 1. Any other entry may change the identity or how the server is reached, so
# it is an error: ignoring it could send requests with more permissions than the file grants, or over another route.
_CLUSTER = frozenset({"server", "certificate-authority", "certificate-authority-data", "insecure-skip-tls-verify"}) | {
    *("tls-server-name", "proxy-url", "disable-compression", "extensions")
}
_USER = frozenset({"client-certificate", "client-certificate-data", "client-key", "client-key-data"}) | {
    *("token", "tokenFile", "exec", "extensions", *impersonation.KEYS)
}
_CONTEXT = frozenset({"cluster", "user", "namespace", "extensions"})
_files = ExitStack()  # of certificates and keys, readable only by the owner, until the process ends
atexit.register(_files.close)
_PLUGIN_CONFIG = "client.authentication.k8s.io/exec"  # the cluster extension meant for plugins


def read(path: str | None = None, context: str | None = None) -> ClusterCredentials:
    """Read access from a kubeconfig.

    Args:
        path: the file; default: the files in KUBECONFIG, where the first to define an entry wins, or
            ``~/.kube/config``.
        context: which context; default: the current one.

    Raises:
        InvalidArgument: there is no such file or context, or it needs an unsupported feature; the message says which.
    """
    named = path or os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    files = [Path(file) for file in ([named] if path else named.split(os.pathsep)) if file]
    existing = [file for file in files if file.is_file()]
    if not existing:
        raise InvalidArgument(
            f"no cluster configured: kubeconfig {', '.join(map(str, files))} not found, and this is not a pod with a "
            "service account; pass --kubeconfig"
        )
    configs = [(_content(file), file) for file in existing]
    current = context or next(
        (str(config["current-context"]) for config, _ in configs if config.get("current-context")), ""
    )
    if not current:
        raise InvalidArgument(f"{existing[0]} has no current context: pass --context")
    chosen, context_file = _entry(configs, "contexts", "context", current)
    _check(chosen, _CONTEXT, f"{context_file}: the context {current!r}")
    name = str(chosen.get("cluster") or "")
    cluster, cluster_file = _entry(configs, "clusters", "cluster", name)
    _check(cluster, _CLUSTER, f"{cluster_file}: the cluster {name!r}")
    user: dict[str, Any] = {}
    user_file = cluster_file
    if chosen.get("user"):
        user, user_file = _entry(configs, "users", "user", str(chosen["user"]))
        _check(user, _USER, f"{user_file}: the user {chosen['user']!r}")
    verify, authority = _verified(cluster, cluster_file), _authority(cluster, cluster_file)
    if authority is not None and not verify:
        raise InvalidArgument(f"{cluster_file}: insecure-skip-tls-verify conflicts with a certificate authority")
    proxy = _text(cluster, "proxy-url", cluster_file)
    if proxy is not None:
        proxies.parse(proxy, f"{cluster_file}: proxy-url")
    token_file = _text(user, "tokenFile", user_file)
    return ClusterCredentials(
        str(cluster.get("server") or ""),
        str(chosen.get("namespace") or "default"),
        ca=authority,
        certificate=_file(user, "client-certificate", user_file),
        key=_file(user, "client-key", user_file),
        token=None if token_file else _text(user, "token", user_file),
        token_file=_beside(user_file, token_file) if token_file else None,
        plugin=_plugin(user, user_file),
        plugin_cluster=_exec_cluster(cluster, authority),
        verify=verify,
        tls_name=_text(cluster, "tls-server-name", cluster_file),
        proxy_url=proxy,
        impersonated=impersonation.read(user, str(user_file)),
    )


def _check(entry: dict[str, Any], supported: frozenset[str], where: str) -> None:
    """Reject unknown keys of an entry; empty ones (null, "") are allowed."""
    unknown = sorted(str(key) for key, value in entry.items() if key not in supported and value)
    if unknown:
        raise InvalidArgument(
            f"{where} has {', '.join(unknown)}, which is not supported and may change the identity or how the server "
            f"is reached; supported are {', '.join(sorted(supported))}"
        )


def _text(entry: dict[str, Any], key: str, path: Path) -> str | None:
    value = entry.get(key)
    if value is None or value == "":
        return None
    if not isinstance(value, str) or any(ord(character) < 32 or ord(character) == 127 for character in value):
        raise InvalidArgument(f"{path}: {key} must be a one-line string")  # the value is not shown: it may be a secret
    return value


def _verified(cluster: dict[str, Any], path: Path) -> bool:
    value = cluster.get("insecure-skip-tls-verify")
    if value not in (None, True, False):  # "false" in quotes would count as true
        raise InvalidArgument(f"{path}: insecure-skip-tls-verify must be true or false, not {value!r}")
    return not value


def _plugin(user: dict[str, Any], path: Path) -> dict[str, Any] | None:
    if not user.get("exec"):
        return None
    plugin = check_plugin(user["exec"], str(path))
    if os.sep in plugin["command"]:  # otherwise it is looked up in PATH
        plugin = {**plugin, "command": str(_beside(path, plugin["command"]))}
    return plugin


def _exec_cluster(cluster: dict[str, Any], authority: str | None) -> dict[str, Any]:
    """Description of the cluster for a credential plugin that requests it."""
    exec_cluster = {
        key: cluster[key]
        for key in ("server", "tls-server-name", "insecure-skip-tls-verify", "proxy-url", "disable-compression")
        if cluster.get(key)
    }
    if authority is not None:
        exec_cluster["certificate-authority-data"] = base64.b64encode(authority.encode()).decode("ascii")
    for extension in cluster.get("extensions") or []:
        if isinstance(extension, dict) and extension.get("name") == _PLUGIN_CONFIG:
            exec_cluster["config"] = extension.get("extension")
    return exec_cluster


def _content(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"cannot read the kubeconfig {path}: {error}") from error
    parts = [part.content for part in manifests.parse(text, str(path)).parts if part.content is not None]
    if len(parts) != 1 or not isinstance(parts[0], dict):
        raise InvalidArgument(f"the kubeconfig {path} must be a single mapping")
    content: dict[str, Any] = parts[0]
    return content


def _entry(
    configs: list[tuple[dict[str, Any], Path]], plural: str, singular: str, name: str
) -> tuple[dict[str, Any], Path]:
    for content, path in configs:
        for entry in content.get(plural) or []:
            if isinstance(entry, dict) and entry.get("name") == name and isinstance(entry.get(singular), dict):
                return entry[singular], path
    places = ", ".join(str(path) for _, path in configs)
    raise InvalidArgument(f"{places}: no {singular} named {name!r}")


def _authority(cluster: dict[str, Any], path: Path) -> str | None:
    if cluster.get("certificate-authority-data"):
        certificate = decoded(cluster["certificate-authority-data"], f"{path}: certificate-authority-data")
    elif cluster.get("certificate-authority"):
        file = _beside(path, str(cluster["certificate-authority"]))
        try:
            certificate = file.read_bytes()
        except OSError as error:
            raise InvalidArgument(f"{path}: the certificate authority cannot be read: {error}") from error
    else:
        return None
    try:
        return certificate.decode("ascii")
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"{path}: the certificate authority is not in PEM form: {error}") from error


def _file(user: dict[str, Any], key: str, path: Path) -> str | None:
    """The path of a certificate or key; inline data is written to a file, because OpenSSL reads only files."""
    if user.get(f"{key}-data"):
        content = decoded(user[f"{key}-data"], f"{path}: {key}-data")
        file = _files.enter_context(tempfile.NamedTemporaryFile(prefix="entrepot-", suffix=".pem"))  # noqa: SIM115
        file.write(content)
        file.flush()
        return file.name
    return str(_beside(path, str(user[key]))) if user.get(key) else None


def _beside(path: Path, name: str) -> Path:
    """Resolve a path in a kubeconfig, relative to the file's own directory."""
    return path.parent / Path(name).expanduser()
