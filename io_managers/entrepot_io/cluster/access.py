"""Where the API server is and who asks: in a pod by its service account, elsewhere by a kubeconfig."""

from __future__ import annotations

import base64
import os
import ssl
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from entrepot.errors import InvalidArgument

from entrepot_io.cluster.exec_credentials import run_plugin

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TOKEN_SECONDS = 60.0  # a projected token is renewed long before it ends; it is read again this often


@dataclass
class Access:
    """How one cluster is reached. Never printed whole: it holds secrets.

    Attributes:
        server: URL of the API server.
        namespace: where requests go that name none.
        ca: PEM of the certificate authority; None: those of the machine.
        certificate, key: files of a client certificate.
        token: bearer token.
        token_file: where it is read from, again and again.
        plugin: what prints credentials, as in a kubeconfig under ``exec``.
        verify: whether the server's certificate is checked.
    """

    server: str
    namespace: str = "default"
    ca: str | None = field(default=None, repr=False)
    certificate: str | None = None
    key: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    token_file: Path | None = None
    plugin: dict[str, Any] | None = field(default=None, repr=False)
    verify: bool = True
    _token_read: float = field(default=0.0, repr=False)

    def __post_init__(self) -> None:
        parts = urlsplit(self.server)
        if parts.scheme not in ("https", "http") or not parts.hostname:
            raise InvalidArgument(f"the API server is a URL such as https://10.0.0.1:443, not {self.server!r}")
        if parts.scheme == "http" and (self.token or self.token_file or self.plugin):
            raise InvalidArgument(f"a token is not sent in the clear: {self.server} must begin with https://")

    @property
    def prefix(self) -> str:
        """What stands before each path, for servers behind a proxy."""
        return urlsplit(self.server).path.rstrip("/")

    def headers(self) -> dict[str, str]:
        """Who asks, for a request.

        Raises:
            InvalidArgument: the token's file cannot be read, or the plugin failed.
        """
        if self.token_file is not None and (not self.token or time.monotonic() - self._token_read > TOKEN_SECONDS):
            self._read_token()
        if self.plugin is not None and not self.token:
            self.token = run_plugin(self.plugin, self.server)
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}

    def refresh(self) -> bool:
        """Get the token anew after it was refused, and say whether it is another one."""
        before = self.token
        if self.token_file is not None:
            self._read_token()
        elif self.plugin is not None:
            self.token = run_plugin(self.plugin, self.server)
        return self.token != before

    def _read_token(self) -> None:
        assert self.token_file is not None
        try:
            self.token = self.token_file.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidArgument(f"the token of the service account cannot be read: {error}") from error
        self._token_read = time.monotonic()

    def tls(self) -> ssl.SSLContext:
        """How the connection is secured.

        Raises:
            InvalidArgument: a certificate cannot be used.
        """
        try:
            context = ssl.create_default_context(cadata=self.ca)
            if not self.verify:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            if self.certificate is not None:
                context.load_cert_chain(self.certificate, self.key)
        except (OSError, ValueError) as error:
            raise InvalidArgument(f"a certificate for {self.server} cannot be used: {error}") from error
        return context


def in_cluster() -> Access | None:
    """Access by the service account of the pod that this process runs in; None: it has none.

    Raises:
        InvalidArgument: the account's files cannot be read.
    """
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host or not (ACCOUNT / "token").exists():
        return None
    named = f"[{host}]" if ":" in host else host
    try:
        ca = (ACCOUNT / "ca.crt").read_text(encoding="ascii")
        namespace = (ACCOUNT / "namespace").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"the pod's service account cannot be used: {error}") from error
    return Access(f"https://{named}:{port}", namespace, ca=ca, token_file=ACCOUNT / "token")


def find(kubeconfig: str | None = None, context: str | None = None) -> Access:
    """Access as ``kubectl`` would find it: a kubeconfig that is named, the pod's own account, the user's kubeconfig.

    Args:
        kubeconfig: a file; default: KUBECONFIG, or ``~/.kube/config``.
        context: which context of it; default: its current one.

    Raises:
        InvalidArgument: there is none, or it cannot be used; the message says what is wrong with it.
    """
    from entrepot_io.cluster import kubeconfig as files

    if kubeconfig is None and context is None and not os.environ.get("KUBECONFIG"):
        found = in_cluster()
        if found is not None:
            return found
    return files.read(kubeconfig, context)


def decoded(text: str, what: str) -> bytes:
    """What stands in base64 in a kubeconfig.

    Raises:
        InvalidArgument: it is no base64.
    """
    try:
        return base64.b64decode(text, validate=True)
    except (ValueError, TypeError) as error:
        raise InvalidArgument(f"{what} is not base64: {error}") from error
