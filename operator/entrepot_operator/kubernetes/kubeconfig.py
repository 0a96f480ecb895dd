"""Kubeconfigs, read by the official client, after checks of what it would ignore or get wrong without an error.

A file that cannot be honoured as it stands is an error: a request must not be made by another user than the file says,
by nobody, or without the verification that it asks for.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlsplit

from entrepot.errors import InvalidArgument

from entrepot_operator.kubernetes.cluster_credentials import ClusterCredentials
from entrepot_operator.kubernetes.official import ConfigException, Configuration, kube_config, yaml

# Entries of which the official client, or this module, knows the meaning, or which change nothing. Any other may change
# the identity or how the server is reached.
_KNOWN = {
    "context": {"cluster", "user", "namespace", "extensions"},
    "cluster": {"server", "certificate-authority", "certificate-authority-data", "insecure-skip-tls-verify"}
    | {"tls-server-name", "proxy-url", "disable-compression", "extensions"},
    "user": {"client-certificate", "client-certificate-data", "client-key", "client-key-data", "token", "tokenFile"}
    | {"username", "password", "exec", "extensions", "as", "as-uid", "as-groups", "as-user-extra"},
    "exec": {"command", "args", "env", "apiVersion", "installHint", "provideClusterInfo", "interactiveMode"},
}
_NO_CREDENTIALS = {"extensions", "as", "as-uid", "as-groups", "as-user-extra"}  # of a user
_PLAIN = "!#$&'*+^`|"  # in a header's name, beside what is plain in a URL


def read(path: str | None = None, context: str | None = None) -> ClusterCredentials:
    """Read access from a kubeconfig.

    Args:
        path: the file; default: the files in KUBECONFIG, where the first to define an entry wins, or
            ``~/.kube/config``.
        context: which context; default: the current one.

    Raises:
        InvalidArgument: there is no such file or context, or it cannot be honoured; the message says why.
    """
    where = path or os.environ.get("KUBECONFIG") or os.path.join("~", ".kube", "config")
    try:
        return _read(where, context)
    except (ConfigException, OSError, yaml.YAMLError, KeyError, ValueError, TypeError, AttributeError) as error:
        if isinstance(error, InvalidArgument):
            raise
        raise InvalidArgument(f"the kubeconfig {where} cannot be used: {_without_secrets(str(error))}") from error


def _read(where: str, context: str | None) -> ClusterCredentials:
    files = kube_config.KubeConfigMerger(where)
    if files.config is None:
        raise InvalidArgument(
            f"no cluster configured: kubeconfig {where} not found, and this is not a pod with a service account; "
            "pass --kubeconfig"
        )
    # The official client would take the last file's.
    defaults = (file.get("current-context") for file in files.config_files.values())
    current = context or next((str(name) for name in defaults if name), "")
    if not current:
        raise InvalidArgument(f"{where} has no current context: pass --context")
    chosen = _entry(files.config, "context", current, where)
    cluster = _entry(files.config, "cluster", str(chosen.get("cluster") or ""), where)
    user = _entry(files.config, "user", str(chosen["user"]), where) if chosen.get("user") else {}
    _check_cluster(cluster, where)
    if user.get("exec"):
        _check_known("exec", user["exec"], f"{where}: a user's exec")
    if user.get("token") and user.get("tokenFile"):
        raise InvalidArgument(f"{where}: a user has token and tokenFile: remove the one that is outdated")
    impersonation = tuple(_impersonation(user, where))

    configuration = Configuration()
    with _LoggedErrors() as errors:
        kube_config.load_kube_config_from_dict(files.config, current, configuration, persist_config=False)
    if cluster.get("proxy-url"):  # ignored before version 37, and NO_PROXY does not apply to it
        configuration.proxy, configuration.no_proxy = cluster["proxy-url"], None
    given = [name for name in user if user[name] and name not in _NO_CREDENTIALS]
    if given and (errors or not (configuration.api_key or configuration.cert_file)):
        reasons = _without_secrets("; ".join(errors) or "it is incomplete")
        raise InvalidArgument(f"{where}: {' and '.join(given)} of a user gives no credentials: {reasons}")
    if configuration.api_key and not configuration.host.startswith("https://"):
        raise InvalidArgument(f"refusing to send a token in the clear: {configuration.host} must begin with https://")
    return ClusterCredentials(configuration, str(chosen.get("namespace") or "default"), impersonation)


def _entry(config: Any, kind: str, name: str, where: str) -> Mapping[str, Any]:
    """The named entry of the context, cluster or user; unlike the official client, also a user must exist."""
    entry: dict[str, Any] = config[f"{kind}s"].get_with_name(name)[kind].value
    for key in [key for key, value in entry.items() if value is None]:
        del entry[key]  # means the same as no entry to kubectl; the official client would fail
    _check_known(kind, entry, f"{where}: the {kind} {name!r}")
    return entry


def _check_known(kind: str, entry: Mapping[str, Any], what: str) -> None:
    """Reject unknown keys; empty ones (null, "") are allowed."""
    unknown = sorted(str(key) for key, value in entry.items() if key not in _KNOWN[kind] and value)
    if unknown:
        raise InvalidArgument(
            f"{what} has {', '.join(unknown)}, which is not supported and may change the identity or how the server "
            f"is reached; supported are {', '.join(sorted(_KNOWN[kind]))}"
        )


def _check_cluster(cluster: Mapping[str, Any], where: str) -> None:
    server, skips = cluster.get("server"), cluster.get("insecure-skip-tls-verify")
    parts = urlsplit(str(server or ""))
    if parts.scheme not in ("https", "http") or not parts.hostname:
        raise InvalidArgument(f"{where}: the server must be a URL such as https://10.0.0.1:443, not {server!r}")
    if skips not in (None, True, False):  # "false" in quotes would count as true
        raise InvalidArgument(f"{where}: insecure-skip-tls-verify must be true or false, not {skips!r}")


def _impersonation(user: Mapping[str, Any], where: str) -> Iterator[tuple[str, str]]:
    """The headers for whom the user impersonates, which the official client would ignore."""
    extra = user.get("as-user-extra") or {}
    fields: list[tuple[str, str, Any]] = [
        *((key, header, [user[key]]) for key, header in (("as", "User"), ("as-uid", "Uid")) if user.get(key)),
        ("as-groups", "Group", user.get("as-groups")),
        *(("as-user-extra", f"Extra-{quote(str(key), safe=_PLAIN)}", values) for key, values in extra.items()),
    ]
    given = [field for field in fields if field[2]]
    if given and not user.get("as"):
        raise InvalidArgument(f"{where}: a user has {given[0][0]}, but no `as` to name whom to impersonate")
    for key, header, values in given:
        if not isinstance(values, list) or not all(isinstance(text, str) and text.isprintable() for text in values):
            raise InvalidArgument(f"{where}: {key} must consist of one-line strings, not {values!r}")
        for text in values:
            yield f"Impersonate-{header}", text.encode().decode("latin-1")  # sent as UTF-8


def _without_secrets(text: str) -> str:
    """A message of the official client, which may quote the whole entry of a user."""
    return re.sub(r"/\{.*\}", "", text, flags=re.DOTALL)


class _LoggedErrors(logging.Handler):
    """Collects what this thread logs as errors: the official client logs, but does not raise, why a program failed."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.messages: list[str] = []
        self._ours = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the message."""
        if record.thread == self._ours:
            self.messages.append(record.getMessage())

    def __enter__(self) -> list[str]:
        logging.getLogger().addHandler(self)
        return self.messages

    def __exit__(self, *_: object) -> None:
        logging.getLogger().removeHandler(self)
