"""Authentication and routes of requests as given by a kubeconfig, against servers that check them."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from entrepot.errors import AccessDenied, InvalidArgument
from entrepot_operator.kubernetes import proxies
from entrepot_operator.kubernetes.api import Api
from entrepot_operator.kubernetes.credentials import find
from entrepot_operator.kubernetes.errors import ClusterUnavailable
from tls_servers import (
    NODE,
    PROXY_EXCEPTIONS,
    PROXY_VARIABLES,
    Cluster,
    HttpProxy,
    LoopbackServer,
    kubeconfig_text,
    plugin,
)


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROXY_VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path)
    yield cluster
    cluster.stop()


@pytest.fixture
def proxy(cluster: Cluster) -> Iterator[HttpProxy]:
    proxy = HttpProxy(cluster.port)
    yield proxy
    proxy.stop()


def test_requests_are_made_as_whom_the_kubeconfig_says(cluster: Cluster) -> None:
    got = cluster.send_request(
        user={
            "token": "secret",
            "as": "jané",
            "as-uid": "42",
            "as-groups": ["readers", "night shift"],
            "as-user-extra": {"example.org/reason": ["on call", "test"]},
        }
    )
    assert got["Authorization"] == "Bearer secret"
    assert got["Impersonate-User"].encode("latin-1").decode() == "jané"
    assert got["Impersonate-Uid"] == "42"
    assert got.get_all("Impersonate-Group") == ["readers", "night shift"]
    assert got.get_all("Impersonate-Extra-example.org%2Freason") == ["on call", "test"]


def test_watches_are_made_as_that_one_too(cluster: Cluster) -> None:
    api = Api(find(cluster.kubeconfig(user={"token": "secret", "as": "jane"})), patience=0)
    with suppress(ClusterUnavailable, KeyError):
        list(api.watch("/api/v1/nodes", "1"))
    assert cluster.requests[-1][0]["Impersonate-User"] == "jane"


@pytest.mark.parametrize(
    ("user", "match"),
    [
        ({"as-groups": ["system:masters"]}, "as-groups, but no `as` to name"),
        ({"as-uid": "1"}, "as-uid, but no `as` to name"),
        ({"as": ["jane"]}, "as must be a one-line string"),
        ({"as": "jane\r\nImpersonate-Group: system:masters"}, "as must be a one-line string"),
        ({"as": "jane", "as-groups": "readers"}, "as-groups must be a list"),
        ({"as": "jane", "as-user-extra": {"reason": "test"}}, r"as-user-extra\['reason'\] must be a list"),
        ({"as": "jane", "as-user-extra": ["reason"]}, "as-user-extra must be a mapping"),
        ({"impersonate": "jane"}, "'u' has impersonate, which is not supported"),
        ({"username": "u", "password": "p"}, "'u' has password, username, which is not supported"),
        ({"exec": {"command": "x", "interactiveMode": "Always"}}, "interactiveMode Always"),
        ({"exec": {"command": "x", "apiVersion": "client.authentication.k8s.io/v1alpha1"}}, "apiVersion"),
        ({"exec": {"command": "x", "asUser": "jane"}}, "asUser under a user's exec"),
        ({"exec": {"args": ["x"]}}, "with a command"),
        ({"exec": {"command": "x", "env": ["A=1"]}}, "list of pairs"),
        ({"token": 5}, "token must be a one-line string"),
    ],
)
def test_authentication_fields_are_supported_or_refused(tmp_path: Path, user: dict[str, Any], match: str) -> None:
    (tmp_path / "config").write_text(kubeconfig_text(user, {"server": "https://a"}))
    with pytest.raises(InvalidArgument, match=match):
        find(str(tmp_path / "config"))


@pytest.mark.parametrize(
    ("server", "match"),
    [
        ({"proxy": "http://p"}, "'c' has proxy, which is not supported"),
        ({"proxy-url": "https://p:3128"}, "proxy-url: .*begins with http://.*not 'https'"),
        ({"proxy-url": "http://p:port"}, "proxy-url: invalid proxy URL"),
        ({"insecure-skip-tls-verify": "false"}, "true or false, not 'false'"),
        ({"insecure-skip-tls-verify": True, "certificate-authority-data": "YQ=="}, "conflicts with a certificate"),
    ],
)
def test_what_says_how_a_server_is_reached_is_understood_or_refused(
    tmp_path: Path, server: dict[str, Any], match: str
) -> None:
    (tmp_path / "config").write_text(kubeconfig_text({}, {"server": "https://a"} | server))
    with pytest.raises(InvalidArgument, match=match):
        find(str(tmp_path / "config"))


def test_what_changes_nothing_may_stand_there(tmp_path: Path) -> None:
    extra = {"extensions": [{"name": "note"}], "unknown-but-empty": None}
    (tmp_path / "config").write_text(
        kubeconfig_text(extra, {"server": "https://a", "disable-compression": True, **extra})
    )
    assert find(str(tmp_path / "config")).impersonated is None


def test_the_certificate_is_checked_against_the_name_that_is_given(cluster: Cluster) -> None:
    assert cluster.send_request()["Host"] == f"127.0.0.1:{cluster.port}"
    with pytest.raises(ClusterUnavailable, match=r"not trusted.*127\.0\.0\.1"):
        cluster.send_request({"tls-server-name": None})
    with pytest.raises(ClusterUnavailable, match=r"not trusted.*other\.example"):
        cluster.send_request({"tls-server-name": "other.example"})


def test_a_cluster_behind_a_proxy_is_reached_through_it(cluster: Cluster, proxy: HttpProxy) -> None:
    url = proxy.url.replace("//", "//me:p%40ss@")
    got = cluster.send_request({"server": "https://api.example:6443", "tls-server-name": None, "proxy-url": url})
    credentials = "Basic " + base64.b64encode(b"me:p@ss").decode()
    assert proxy.tunnels == [("api.example:6443", credentials)]
    assert (got["Host"], got["Authorization"]) == ("api.example:6443", "Bearer secret")
    assert got["Proxy-Authorization"] is None, "the proxy's password is not the server's to know"


def test_a_proxy_that_refuses_is_named_without_its_password(cluster: Cluster) -> None:
    refusing = LoopbackServer(BaseHTTPRequestHandler)
    try:
        with pytest.raises(ClusterUnavailable, match=r"through the proxy 127\.0\.0\.1:\d+ \(proxy-url.*501") as caught:
            cluster.send_request({"proxy-url": f"http://me:hidden@127.0.0.1:{refusing.port}"})
    finally:
        refusing.stop()
    assert "hidden" not in str(caught.value)


def test_the_proxy_of_the_environment_is_used(
    cluster: Cluster, proxy: HttpProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    behind: dict[str, Any] = {"server": "https://api.example", "tls-server-name": None}
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("HTTPS_PROXY", f"127.0.0.1:{proxy.port}")
    cluster.send_request(behind)
    assert proxy.tunnels == [("api.example:443", None)]
    cluster.send_request()
    assert len(proxy.tunnels) == 1, "this machine itself is not reached through a proxy"
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    cluster.send_request({**behind, "proxy-url": proxy.url})
    assert len(proxy.tunnels) == 2, "the kubeconfig's own proxy wins"


@pytest.mark.parametrize(("excepted", "server", "through"), PROXY_EXCEPTIONS)
def test_exceptions_from_the_proxy_are_those_of_kubectl(
    excepted: str, server: str, through: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    monkeypatch.setenv("NO_PROXY", excepted)
    proxy = proxies.from_environment(server)
    assert (proxy is not None) == through
    assert proxy is None or (proxy.host, proxy.port, proxy.said_by) == ("proxy", 3128, "HTTPS_PROXY")


def test_a_proxy_that_cannot_be_used_is_not_gone_around(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "socks5://me:hidden@proxy")
    with pytest.raises(InvalidArgument, match=r"HTTPS_PROXY.*'socks5'") as caught:
        cluster.send_request({"server": "https://api.example"})
    assert "hidden" not in str(caught.value)


def test_a_program_gives_a_client_certificate(cluster: Cluster, tmp_path: Path) -> None:
    user = plugin(tmp_path, cluster.certificate("jane"))
    got = cluster.send_request(user={**user, "as": "john"})
    assert cluster.requests[-1][1] == "jane"
    assert (got["Authorization"], got["Impersonate-User"]) == (None, "john")
    cluster_info = json.loads((tmp_path / "exec-info").read_text())["spec"]["cluster"]
    assert (cluster_info["server"], cluster_info["tls-server-name"]) == (
        f"https://127.0.0.1:{cluster.port}",
        "api.example",
    )
    assert base64.b64decode(cluster_info["certificate-authority-data"]) == (tmp_path / "ca.crt").read_bytes()


def test_a_certificate_that_is_refused_is_got_anew_and_shown_on_another_connection(
    cluster: Cluster, tmp_path: Path
) -> None:
    user = plugin(tmp_path, cluster.certificate("jane"), cluster.certificate("john"))
    api = Api(find(cluster.kubeconfig(user=user)), patience=0)
    api.get(NODE)
    cluster.refused = 1
    api.get(NODE)
    assert [name for _, name in cluster.requests] == ["jane", "jane", "john"]
    cluster.refused = 2
    with pytest.raises(AccessDenied):
        api.get(NODE)


def test_credentials_are_refreshed_when_they_expire(cluster: Cluster, tmp_path: Path) -> None:
    past = "2020-01-01T00:00:00Z"
    ending = {"token": "t-0", "expirationTimestamp": past}
    lasting = {"token": "t-1", **cluster.certificate("jane")}
    api = Api(find(cluster.kubeconfig(user=plugin(tmp_path, ending, lasting))), patience=0)
    for _ in range(3):
        api.get(NODE)
    shown = [(headers["Authorization"], name) for headers, name in cluster.requests]
    assert shown == [("Bearer t-0", None), ("Bearer t-1", "jane"), ("Bearer t-1", "jane")]
    assert len(list(tmp_path.glob("ran-*"))) == 2


def test_half_a_certificate_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    user = plugin(tmp_path, {"token": "t", "clientCertificateData": "x"})
    with pytest.raises(InvalidArgument, match="clientKeyData is missing"):
        cluster.send_request(user=user)
    assert cluster.requests == []
