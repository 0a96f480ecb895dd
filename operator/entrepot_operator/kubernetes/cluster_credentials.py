"""Address and credentials of one cluster's API server, as the official client holds them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from entrepot.errors import InvalidArgument

from entrepot_operator.kubernetes.official import ApiClient, ConfigException, Configuration, urllib3


@dataclass(frozen=True)
class ClusterCredentials:
    """Address and credentials of one cluster. Holds secrets, which its repr omits.

    Attributes:
        configuration: of the official client: server, authority, token or client certificate, proxy.
        namespace: default namespace of requests.
        impersonation: headers that name whom to impersonate; names may repeat.
    """

    configuration: Configuration = field(repr=False)
    namespace: str = "default"
    impersonation: tuple[tuple[str, str], ...] = ()

    @property
    def server(self) -> str:
        """URL of the API server."""
        return str(self.configuration.host)

    def connect(self) -> urllib3.PoolManager:
        """Connections to the server as the official client makes them; opened when they are needed.

        Raises:
            InvalidArgument: the proxy cannot be used.
        """
        configuration: Any = self.configuration
        try:
            proxy = urlsplit(configuration.proxy or "")
            if proxy.username and not configuration.proxy_headers:  # the official client would not send them
                pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
                configuration.proxy_headers = urllib3.make_headers(proxy_basic_auth=pair)
            pool: urllib3.PoolManager = ApiClient(configuration).rest_client.pool_manager
        except (urllib3.exceptions.HTTPError, ImportError, ValueError) as error:
            # A proxy's URL may contain a password: show only the kind of the error.
            raise InvalidArgument(f"the proxy for {self.server} cannot be used: {type(error).__name__}") from error
        return pool

    def headers(self) -> urllib3.HTTPHeaderDict:
        """Headers of a request that say who sends it. The official client first renews a token that has expired.

        Raises:
            InvalidArgument: the token is empty, or a service account's can no longer be read.
        """
        headers = urllib3.HTTPHeaderDict()
        try:
            for setting in self.configuration.auth_settings().values():
                headers[setting["key"]] = setting["value"]
        except (ConfigException, OSError) as error:
            raise InvalidArgument(f"the token for {self.server} cannot be renewed: {error}") from error
        if not all(value.partition(" ")[2].strip() for value in headers.values()):
            raise InvalidArgument(f"the token for {self.server} is empty: log in to the cluster again")
        for name, value in self.impersonation:
            headers.add(name, value)
        return headers
