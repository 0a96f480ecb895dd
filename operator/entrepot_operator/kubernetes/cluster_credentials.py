"""Credentials of one cluster's API server, wherever they were found, and how they are renewed."""

from __future__ import annotations

import base64
import ssl
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from entrepot.errors import InvalidArgument

from entrepot_operator.kubernetes import proxies
from entrepot_operator.kubernetes.exec_credentials import Given, run_plugin
from entrepot_operator.kubernetes.impersonation import Impersonated

TOKEN_SECONDS = 60.0  # how often the token is reread; projected tokens are renewed long before they expire


@dataclass
class ClusterCredentials:
    """Address and credentials of one cluster. Holds secrets, which its repr omits.

    Attributes:
        server: URL of the API server.
        namespace: default namespace of requests.
        ca: PEM of the certificate authority; None: the machine's.
        certificate, key: files of a client certificate.
        token: bearer token.
        token_file: file the token is read from, repeatedly.
        plugin: credential plugin, as under ``exec`` in a kubeconfig. An explicit token takes precedence over the
            plugin's.
        plugin_cluster: what the plugin is told about the cluster, if it asks for that.
        verify: whether the server's certificate is checked.
        tls_name: the name that the certificate is checked against; None: the server's host.
        proxy_url: an ``http://`` proxy; None: as HTTPS_PROXY and NO_PROXY say.
        impersonated: the identity to impersonate; None: the credentials' own.
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
            raise InvalidArgument(f"the API server must be a URL such as https://10.0.0.1:443, not {self.server!r}")
        if parts.scheme == "http" and (self.token or self.token_file or self.plugin):
            raise InvalidArgument(f"refusing to send a token in the clear: {self.server} must begin with https://")

    @property
    def prefix(self) -> str:
        """Path prefix of all requests, for servers behind a reverse proxy."""
        return urlsplit(self.server).path.rstrip("/")

    @property
    def identity(self) -> object:
        """Changes when connections made earlier present an outdated client certificate."""
        return self._given.certificate

    def proxy(self) -> proxies.Proxy | None:
        """The proxy to the server; None: there is none.

        Raises:
            InvalidArgument: the configured proxy cannot be used.
        """
        if self.proxy_url is not None:
            return proxies.parse(self.proxy_url, "proxy-url of the kubeconfig")
        return proxies.from_environment(self.server)

    def headers(self) -> list[tuple[str, str]]:
        """Authentication headers of a request; names may repeat. Call before connecting: it also obtains the client
        certificate.

        Raises:
            InvalidArgument: the token file cannot be read, or the plugin failed.
        """
        if self.token_file is not None and (not self.token or time.monotonic() - self._token_read > TOKEN_SECONDS):
            self._read_token()
        if self._asks_plugin and (self._given == Given() or self._given.is_over):
            self._run_plugin()
        token = self.token or self._given.token
        authorization = [("Authorization", f"Bearer {token}")] if token else []
        return authorization + (self.impersonated.headers() if self.impersonated is not None else [])

    def refresh(self) -> bool:
        """Obtain new credentials after the current ones were rejected; returns whether they differ."""
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
        # Keep the old object if equal: a different object causes reconnects.
        self._given = self._given if given == self._given else given

    def _read_token(self) -> None:
        assert self.token_file is not None
        try:
            self.token = self.token_file.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidArgument(f"cannot read the service account's token: {error}") from error
        self._token_read = time.monotonic()

    def tls(self) -> ssl.SSLContext:
        """The TLS context of a connection.

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
    """Load a certificate that is not in a file into a context, through a temporary file: OpenSSL reads only files."""
    with tempfile.NamedTemporaryFile(prefix="entrepot-", suffix=".pem") as file:  # readable only by the owner
        file.write(f"{certificate.rstrip()}\n{key.rstrip()}\n".encode())
        file.flush()
        context.load_cert_chain(file.name)


def decoded(text: str, what: str) -> bytes:
    """Decode a base64 value of a kubeconfig.

    Raises:
        InvalidArgument: it is not base64.
    """
    try:
        return base64.b64decode(text, validate=True)
    except (ValueError, TypeError) as error:
        raise InvalidArgument(f"{what} is not base64: {error}") from error
