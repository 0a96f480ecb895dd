"""Where the API server is and who asks: in a pod by its service account, elsewhere by a kubeconfig."""

from __future__ import annotations

import base64
import os
import ssl
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from entrepot.errors import InvalidArgument

from entrepot_io.cluster import proxies
from entrepot_io.cluster.exec_credentials import Given, run_plugin
from entrepot_io.cluster.impersonation import Impersonated

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
        plugin: what prints credentials, as in a kubeconfig under ``exec``. A token that is given counts before its own.
        plugin_cluster: what the plugin is told about the cluster if it asks for that.
        verify: whether the server's certificate is checked.
        tls_name: the name that the certificate is checked against; None: the server's host.
        proxy_url: the proxy on the way, of ``http://``; None: by HTTPS_PROXY and NO_PROXY.
        impersonated: whom requests are made as; None: whoever the credentials are of.
    """

    server: str
    namespace: str = "default"
    ca: str | None = field(default=None, repr=False)
    certificate: str | None = None
    key: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    token_file: Path | None = None
    plugin: dict[str, Any] | None = field(default=None, repr=False)
    plugin_cluster: Mapping[str, Any] | None = field(default=None, repr=False)
    verify: bool = True
    tls_name: str | None = None
    proxy_url: str | None = field(default=None, repr=False)
    impersonated: Impersonated | None = None
    _token_read: float = field(default=0.0, repr=False)
    _given: Given = field(default_factory=Given, repr=False)

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

    @property
    def identity(self) -> object:
        """Changes where connections made before show another client certificate than one made now."""
        return self._given.certificate

    def proxy(self) -> proxies.Proxy | None:
        """The proxy on the way to the server; None: there is none.

        Raises:
            InvalidArgument: the one that is named cannot be used.
        """
        if self.proxy_url is not None:
            return proxies.parse(self.proxy_url, "proxy-url of the kubeconfig")
        return proxies.from_environment(self.server)

    def headers(self) -> list[tuple[str, str]]:
        """Who asks, for a request. Names may repeat. Call it before a connection is made: it gets the certificate too.

        Raises:
            InvalidArgument: the token's file cannot be read, or the plugin failed.
        """
        if self.token_file is not None and (not self.token or time.monotonic() - self._token_read > TOKEN_SECONDS):
            self._read_token()
        if self._asks_plugin and (self._given == Given() or self._given.is_over):
            self._run_plugin()
        token = self.token or self._given.token
        found = [("Authorization", f"Bearer {token}")] if token else []
        return found + (self.impersonated.headers() if self.impersonated is not None else [])

    def refresh(self) -> bool:
        """Get the credentials anew after they were refused, and say whether they are others."""
        before = self.token, self._given
        if self.token_file is not None:
            self._read_token()
        elif self._asks_plugin:
            self._run_plugin()
        return (self.token, self._given) != before

    @property
    def _asks_plugin(self) -> bool:
        return self.plugin is not None and self.token is None and self.token_file is None

    def _run_plugin(self) -> None:
        assert self.plugin is not None
        given = run_plugin(self.plugin, self.server, self.plugin_cluster)
        # Connections are made again where the certificate is another one: an equal one stays the one that it was.
        self._given = self._given if given == self._given else given

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
            if self._given.certificate is not None:
                _load(context, *self._given.certificate)
        except (OSError, ValueError) as error:
            raise InvalidArgument(f"a certificate for {self.server} cannot be used: {error}") from error
        return context


def _load(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Have a context show a certificate that is no file: OpenSSL takes it from one only, which is gone at once."""
    with tempfile.NamedTemporaryFile(prefix="entrepot-", suffix=".pem") as file:  # the owner's alone
        file.write(f"{certificate.rstrip()}\n{key.rstrip()}\n".encode())
        file.flush()
        context.load_cert_chain(file.name)


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
