"""Kubeconfig files, as far as a program without a terminal can use them."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from entrepot.errors import InvalidArgument

from entrepot_io.cluster.access import Access, decoded
from entrepot_io.placement import manifests


def read(path: str | None = None, context: str | None = None) -> Access:
    """Access by a kubeconfig.

    Args:
        path: the file; default: the files of KUBECONFIG, of which the first that has something wins, or
            ``~/.kube/config``.
        context: which context; default: the current one.

    Raises:
        InvalidArgument: there is no such file or context, or it needs what is not supported; the message says which.
    """
    named = path or os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    files = [Path(one) for one in ([named] if path else named.split(os.pathsep)) if one]
    there = [one for one in files if one.is_file()]
    if not there:
        raise InvalidArgument(
            f"no cluster is known: there is no kubeconfig {', '.join(map(str, files))}, and this is no pod with a "
            "service account; give --kubeconfig"
        )
    configs = [(_content(one), one) for one in there]
    current = context or next(
        (str(found["current-context"]) for found, _ in configs if found.get("current-context")), ""
    )
    if not current:
        raise InvalidArgument(f"{there[0]} has no current context: give --context")
    chosen, _ = _entry(configs, "contexts", "context", current)
    cluster, cluster_file = _entry(configs, "clusters", "cluster", str(chosen.get("cluster") or ""))
    user: dict[str, Any] = {}
    user_file = cluster_file
    if chosen.get("user"):
        user, user_file = _entry(configs, "users", "user", str(chosen["user"]))
    for key in ("proxy-url", "tls-server-name"):
        if cluster.get(key):
            raise InvalidArgument(f"{cluster_file}: {key} of a cluster is not supported")
    for key in ("auth-provider", "username"):
        if user.get(key):
            raise InvalidArgument(f"{user_file}: {key} of a user is not supported; token, certificate and exec are")
    certificate = _file(user, "client-certificate", user_file)
    key_file = _file(user, "client-key", user_file)
    token_file = user.get("tokenFile")
    return Access(
        str(cluster.get("server") or ""),
        str(chosen.get("namespace") or "default"),
        ca=_authority(cluster, cluster_file),
        certificate=certificate,
        key=key_file,
        token=None if token_file else user.get("token"),
        token_file=_beside(user_file, str(token_file)) if token_file else None,
        plugin=user.get("exec"),
        verify=not cluster.get("insecure-skip-tls-verify"),
    )


def _content(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"cannot read the kubeconfig {path}: {error}") from error
    parts = [part.content for part in manifests.read(text, str(path)).parts if part.content is not None]
    if len(parts) != 1 or not isinstance(parts[0], dict):
        raise InvalidArgument(f"the kubeconfig {path} is one mapping")
    content: dict[str, Any] = parts[0]
    return content


def _entry(
    configs: list[tuple[dict[str, Any], Path]], plural: str, singular: str, name: str
) -> tuple[dict[str, Any], Path]:
    for content, path in configs:
        for one in content.get(plural) or []:
            if isinstance(one, dict) and one.get("name") == name and isinstance(one.get(singular), dict):
                return one[singular], path
    places = ", ".join(str(path) for _, path in configs)
    raise InvalidArgument(f"{places}: there is no {singular} named {name!r}")


def _authority(cluster: dict[str, Any], path: Path) -> str | None:
    if cluster.get("certificate-authority-data"):
        said = decoded(cluster["certificate-authority-data"], f"{path}: certificate-authority-data")
    elif cluster.get("certificate-authority"):
        file = _beside(path, str(cluster["certificate-authority"]))
        try:
            said = file.read_bytes()
        except OSError as error:
            raise InvalidArgument(f"{path}: the certificate authority cannot be read: {error}") from error
    else:
        return None
    try:
        return said.decode("ascii")
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"{path}: the certificate authority is not in PEM form: {error}") from error


def _file(user: dict[str, Any], key: str, path: Path) -> str | None:
    """A certificate or key as a file, because OpenSSL takes these from files only."""
    if user.get(f"{key}-data"):
        said = decoded(user[f"{key}-data"], f"{path}: {key}-data")
        # The name stays until the process ends; the file itself is the owner's alone.
        handle, name = tempfile.mkstemp(prefix="entrepot-", suffix=".pem")
        with os.fdopen(handle, "wb") as file:
            file.write(said)
        _remove_at_end(name)
        return name
    return str(_beside(path, str(user[key]))) if user.get(key) else None


def _remove_at_end(name: str) -> None:
    import atexit
    from contextlib import suppress

    def remove() -> None:
        with suppress(FileNotFoundError):
            os.unlink(name)

    atexit.register(remove)


def _beside(path: Path, name: str) -> Path:
    """A path in a kubeconfig, which counts from the file's own folder."""
    return path.parent / Path(name).expanduser()
