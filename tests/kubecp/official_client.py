"""The official Kubernetes client, asked in the same way as ours.

It has two faces with separate code for credentials: ``kubernetes`` (threads) and ``kubernetes.aio`` (asyncio).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from entrepot_operator.kubernetes.api import Api
from entrepot_operator.kubernetes.credentials import find
from tls_servers import NODE, plugin

official: Any = pytest.importorskip("kubernetes")
aio_client: Any = pytest.importorskip("kubernetes.aio.client")
aio_config: Any = pytest.importorskip("kubernetes.aio.config")

VERSION = int(official.__version__.partition(".")[0])  # the tests were written for 36 and 37
SECONDS = 20.0  # for one request of the official client, which has no limit of its own
PLUGIN_VERSION = "client.authentication.k8s.io/v1"


class OfficialClient:
    """The official client with threads, and the credentials of a kubeconfig."""

    def __init__(self, kubeconfig: str, context: str | None = None) -> None:
        self.configuration = official.client.Configuration()
        official.config.load_kube_config(kubeconfig, context, self.configuration, persist_config=False)
        self.api = official.client.ApiClient(self.configuration)

    def get(self, **options: Any) -> None:
        """Send a request."""
        node = official.client.CoreV1Api(self.api).read_node("a", **{"_request_timeout": SECONDS, **options})
        assert node.metadata.name == "a"

    @property
    def uses_proxy(self) -> bool:
        """Whether requests go through a proxy."""
        return type(self.api.rest_client.pool_manager).__name__ == "ProxyManager"


def ask_official(kubeconfig: str, context: str | None = None, times: int = 1) -> None:
    """Send requests with the official client that uses threads."""
    client = OfficialClient(kubeconfig, context)
    for _ in range(times):
        client.get()


def ask_official_aio(kubeconfig: str, context: str | None = None, times: int = 1) -> None:
    """Send requests with the official client that uses asyncio."""

    async def ask() -> None:
        configuration = aio_client.Configuration()
        await aio_config.load_kube_config(kubeconfig, context, configuration, persist_config=False)
        async with aio_client.ApiClient(configuration) as api:
            for _ in range(times):
                node = await aio_client.CoreV1Api(api).read_node("a", _request_timeout=SECONDS)
                assert node.metadata.name == "a"

    asyncio.run(ask())


def ask_ours(kubeconfig: str, context: str | None = None, times: int = 1) -> None:
    """Send requests with our client."""
    api = Api(find(kubeconfig, context), patience=0)
    try:
        for _ in range(times):
            assert api.get(NODE)["metadata"]["name"] == "a"
    finally:
        api.close()


def official_plugin(folder: Path, *printed: Mapping[str, Any]) -> dict[str, Any]:
    """A credential program that suits the official client: with an absolute path, printing its interface's version."""
    user = plugin(folder, *map(dict, printed))
    for file in folder.glob("printed-*"):
        file.write_text(json.dumps({**json.loads(file.read_text()), "apiVersion": PLUGIN_VERSION}))
    return {"exec": {**user["exec"], "command": str(folder / "login"), "apiVersion": PLUGIN_VERSION}}


def custom_objects(url: str) -> Any:
    """The official client's API of custom resources, at a server without TLS."""
    return official.client.CustomObjectsApi(official.client.ApiClient(official.client.Configuration(host=url)))
