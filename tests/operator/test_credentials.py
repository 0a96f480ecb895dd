"""Whom a request is made by and how it reaches the server, as a kubeconfig or a pod's account says; or an error.

The official client reads them; the servers here check what ours adds to it: whatever it would ignore is honoured or
refused.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from entrepot.errors import AccessDenied, InvalidArgument
from entrepot_operator.kubernetes.api import Api
from entrepot_operator.kubernetes.credentials import find
from entrepot_operator.kubernetes.errors import ClusterUnavailable
from entrepot_operator.kubernetes.official import incluster_config
from tls_servers import NODE, Cluster, HttpProxy, LoopbackServer, kubeconfig_text, plugin


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


def write(path: Path, **parts: Any) -> Path:
    """Write a kubeconfig; ``parts`` replace its entries."""
    config: dict[str, Any] = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "stores"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://10.0.0.1:6443/prefix"}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
    }
    path.write_text(json.dumps({**config, **parts}))
    return path


# Files and contexts.


def test_a_kubeconfig_is_read_and_its_secrets_are_not_shown(tmp_path: Path) -> None:
    access = find(str(write(tmp_path / "config")))
    assert (access.server, access.namespace) == ("https://10.0.0.1:6443/prefix", "stores")
    assert dict(access.headers()) == {"authorization": "Bearer secret"}
    assert "secret" not in repr(access)


def test_a_context_selects_cluster_user_and_namespace(cluster: Cluster, tmp_path: Path) -> None:
    config = json.loads(Path(cluster.kubeconfig()).read_text())
    config["users"] += [{"name": "v", "user": {"token": "other"}}]
    config["contexts"] += [{"name": "there", "context": {"cluster": "c", "user": "v", "namespace": "stores"}}]
    path = write(tmp_path / "contexts", **config)
    for context in (None, "there"):
        Api(find(str(path), context), patience=0).get(NODE)
    assert cluster.presented() == [("Bearer secret", None), ("Bearer other", None)]
    assert find(str(path), "there").namespace == "stores"


def test_the_first_of_several_files_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for kubectl, and unlike for the official client, also the current context."""
    first = write(tmp_path / "1", clusters=[], users=[{"name": "u", "user": {"token": "first"}}])
    second = write(tmp_path / "2", **{"current-context": "other"})
    monkeypatch.setenv("KUBECONFIG", f"{first}:{tmp_path / 'none'}:{second}")
    assert find().server == "https://10.0.0.1:6443/prefix"
    assert dict(find().headers()) == {"authorization": "Bearer first"}


@pytest.mark.parametrize(
    ("parts", "match"),
    [
        ({"current-context": ""}, "--context"),
        ({"contexts": []}, "name here in .*contexts"),
        ({"contexts": None}, "contexts"),
        ({"users": []}, "name u in .*users"),
        ({"clusters": [{"name": "c", "cluster": {"server": "10.0.0.1"}}]}, "must be a URL"),
        ({"clusters": [{"name": "c", "cluster": {}}]}, "must be a URL"),
        ({"clusters": [{"name": "c", "cluster": {"server": "http://10.0.0.1"}}]}, "in the clear"),
        ({"users": [{"name": "u", "user": {"auth-provider": {"name": "gcp"}}}]}, "auth-provider.*not supported"),
        ({"users": [{"name": "u", "user": {"client-certificate": "none.crt"}}]}, "none.crt"),
        ({"users": [{"name": "u", "user": "jane"}]}, "cannot be used"),
        ({"users": [{"user": {"token": "hidden"}}]}, "cannot be used"),
    ],
)
def test_a_kubeconfig_that_cannot_be_used_says_why(tmp_path: Path, parts: dict[str, Any], match: str) -> None:
    with pytest.raises(InvalidArgument, match=match):
        find(str(write(tmp_path / "config", **parts)))


def test_no_error_shows_a_secret(tmp_path: Path) -> None:
    """The official client's errors quote the entry that they are about."""
    program = {"command": "x", "apiVersion": "v", "env": [{"name": "A", "value": "hidden"}, {"name": "B"}]}
    contexts = [{"name": "here", "context": {"cluster": "c", "user": "u"}}, {"name": "there", "note": "hidden"}]
    path = write(tmp_path / "config", users=[{"name": "u", "user": {"exec": program}}], contexts=contexts)
    for context in ("here", "there"):
        with pytest.raises(InvalidArgument, match=r"Expected key (value|context) in") as caught:
            find(str(path), context)
        assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "[]", "a: [", "word", "\x00"])
def test_a_file_that_is_no_kubeconfig_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "config").write_text(text)
    with pytest.raises(InvalidArgument, match=str(tmp_path / "config")):
        find(str(tmp_path / "config"))


def test_without_any_cluster_it_says_where_it_looked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(InvalidArgument, match=r"none.*--kubeconfig"):
        find()


# Identity.


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
    with suppress(ClusterUnavailable):
        list(api.watch("/api/v1/nodes", "1"))
    assert cluster.requests[-1][0]["Impersonate-User"] == "jane"


@pytest.mark.parametrize(
    ("user", "match"),
    [
        ({"as-groups": ["system:masters"]}, "as-groups, but no `as` to name"),
        ({"as-uid": "1"}, "as-uid, but no `as` to name"),
        ({"as": "", "as-user-extra": {"reason": ["test"]}}, "as-user-extra, but no `as` to name"),
        ({"as": ["jane"]}, "as must consist of one-line strings"),
        ({"as": "jane\r\nImpersonate-Group: system:masters"}, "as must consist of one-line strings"),
        ({"as": "jane", "as-uid": 42}, "as-uid must consist of one-line strings"),
        ({"as": "jane", "as-groups": "readers"}, "as-groups must consist"),
        ({"as": "jane", "as-user-extra": {"reason": "test"}}, "as-user-extra must consist"),
        ({"as": "jane", "as-user-extra": ["reason"]}, "cannot be used"),
        ({"impersonate": "jane"}, "'u' has impersonate, which is not supported"),
        ({"token": "t", "tokenFile": "file"}, "token and tokenFile"),
        ({"exec": {"command": "x", "asUser": "jane"}}, "exec has asUser"),
        ({"exec": {"command": "x"}}, "exec of a user gives no credentials: .*apiVersion"),
        ({"exec": ["x"]}, "cannot be used"),
        ({"username": "jane"}, "username of a user gives no credentials"),
        ({"password": "hidden"}, "password of a user gives no credentials"),
        ({"client-key": "jane.key"}, "jane.key"),
    ],
)
def test_a_user_who_cannot_be_honoured_is_refused(tmp_path: Path, user: dict[str, Any], match: str) -> None:
    (tmp_path / "config").write_text(kubeconfig_text(user, {"server": "https://a"}))
    with pytest.raises(InvalidArgument, match=match):
        find(str(tmp_path / "config"))


def test_what_changes_nothing_may_stand_there(cluster: Cluster) -> None:
    extra = {"extensions": [{"name": "note"}], "unknown-but-empty": None}
    got = cluster.send_request({"disable-compression": True, **extra}, user={"token": "t", **extra})
    assert (got["Authorization"], got["Impersonate-User"]) == ("Bearer t", None)


@pytest.mark.parametrize("inline", [True, False])
def test_a_client_certificate_is_presented(cluster: Cluster, inline: bool) -> None:
    pair = cluster.certificate("jane")
    user = {"client-certificate": "jane.crt", "client-key": "jane.key"}
    if inline:
        texts = zip(("client-certificate-data", "client-key-data"), pair.values(), strict=True)
        user = {key: base64.b64encode(text.encode()).decode() for key, text in texts}
    cluster.send_request(user=user)
    assert cluster.presented() == [(None, "jane")]


def test_a_program_gives_a_client_certificate(cluster: Cluster, tmp_path: Path) -> None:
    user = plugin(tmp_path, cluster.certificate("jane"))
    got = cluster.send_request(user={**user, "as": "john"})
    assert cluster.presented() == [(None, "jane")]
    assert got["Impersonate-User"] == "john"
    cluster_info = json.loads((tmp_path / "exec-info").read_text())["spec"]["cluster"]
    assert cluster_info["server"] == f"https://127.0.0.1:{cluster.port}"


def test_a_program_gives_a_token_and_another_when_it_expires(cluster: Cluster, tmp_path: Path) -> None:
    printed = {"token": "t-0", "expirationTimestamp": "2020-01-01T00:00:00Z"}, {"token": "t-1"}
    api = Api(find(cluster.kubeconfig(user=plugin(tmp_path, *printed))), patience=0)
    for _ in range(2):
        api.get(NODE)
    assert cluster.presented()[-1] == ("Bearer t-1", None)


@pytest.mark.parametrize("fallback", [{}, {"client-certificate": "jane.crt", "client-key": "jane.key"}])
def test_nothing_is_sent_if_the_program_fails(cluster: Cluster, tmp_path: Path, fallback: dict[str, str]) -> None:
    cluster.certificate("jane")
    user = {**plugin(tmp_path, {"clientCertificateData": "a certificate without its key"}), **fallback}
    with pytest.raises(InvalidArgument, match="missing clientKeyData"):
        cluster.send_request(user=user)
    (tmp_path / "login").write_text("#!/bin/sh\necho log in first >&2; exit 1\n")
    with pytest.raises(InvalidArgument, match=r"exec.*returned 1.*log in first"):
        cluster.send_request(user=user)
    (tmp_path / "login").unlink()
    with pytest.raises(InvalidArgument, match=r"No such file.*login"):
        cluster.send_request(user=user)
    assert cluster.requests == []


def test_nothing_is_sent_if_the_program_prints_an_empty_token(cluster: Cluster, tmp_path: Path) -> None:
    """The API server would take the request for one by nobody."""
    with pytest.raises(InvalidArgument, match=r"token for .* is empty"):
        cluster.send_request(user=plugin(tmp_path, {"token": ""}))
    assert cluster.requests == []


def test_a_refused_token_is_an_error(cluster: Cluster) -> None:
    cluster.refused = 1
    with pytest.raises(AccessDenied, match="log in"):
        cluster.send_request()


@pytest.mark.parametrize("user", [{"token": "secret"}, {"username": "jane", "password": "secret"}])
def test_no_password_is_sent_in_the_clear(tmp_path: Path, user: dict[str, Any]) -> None:
    (tmp_path / "config").write_text(kubeconfig_text(user, {"server": "http://127.0.0.1:9"}))
    with pytest.raises(InvalidArgument, match="in the clear"):
        find(str(tmp_path / "config"))


def test_a_pod_uses_its_own_account_and_rereads_the_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    for name, text in (("token", "old"), ("ca.crt", "an authority"), ("namespace", "stores\n")):
        (tmp_path / name).write_text(text)
    access = find()
    assert (access.server, access.namespace) == ("https://[fd00::1]:6443", "stores")
    assert dict(access.headers()) == {"authorization": "bearer old"}
    (tmp_path / "token").write_text("new")

    passed = timedelta(minutes=2)
    clock = SimpleNamespace(now=lambda: datetime.now() + passed)
    monkeypatch.setattr(incluster_config, "datetime", SimpleNamespace(datetime=clock, timedelta=timedelta))
    assert dict(access.headers()) == {"authorization": "bearer new"}
    (tmp_path / "token").write_text("")
    passed *= 2
    with pytest.raises(InvalidArgument, match=r"cannot be renewed.*empty"):
        access.headers()
    (tmp_path / "namespace").unlink()
    with pytest.raises(InvalidArgument, match="service account cannot be used"):
        find()


# The route.


@pytest.mark.parametrize(
    ("server", "match"),
    [
        ({"proxy": "http://p"}, "'c' has proxy, which is not supported"),
        ({"insecure-skip-tls-verify": "false"}, "true or false, not 'false'"),
    ],
)
def test_what_says_how_a_server_is_reached_is_understood_or_refused(
    tmp_path: Path, server: dict[str, Any], match: str
) -> None:
    (tmp_path / "config").write_text(kubeconfig_text({}, {"server": "https://a"} | server))
    with pytest.raises(InvalidArgument, match=match):
        find(str(tmp_path / "config"))


def test_the_certificate_is_checked_against_the_name_that_is_given(cluster: Cluster) -> None:
    assert cluster.send_request()["Host"] == f"127.0.0.1:{cluster.port}"
    with pytest.raises(ClusterUnavailable, match=r"not trusted.*127\.0\.0\.1"):
        cluster.send_request({"tls-server-name": None})
    with pytest.raises(ClusterUnavailable, match=r"not trusted.*other\.example"):
        cluster.send_request({"tls-server-name": "other.example"})
    with pytest.raises(ClusterUnavailable, match="not trusted"):
        cluster.send_request({"certificate-authority": None})
    assert len(cluster.requests) == 1


def test_a_cluster_behind_a_proxy_is_reached_through_it(
    cluster: Cluster, proxy: HttpProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "api.example")
    url = proxy.url.replace("//", "//me:p%40ss@")
    got = cluster.send_request({"server": "https://api.example:6443", "tls-server-name": None, "proxy-url": url})
    assert proxy.tunnels == [("api.example:6443", "Basic " + base64.b64encode(b"me:p@ss").decode())]
    assert (got["Host"], got["Authorization"]) == ("api.example:6443", "Bearer secret")
    assert got["Proxy-Authorization"] is None, "the proxy's password is not the server's to know"


def test_the_proxy_of_the_environment_is_used(
    cluster: Cluster, proxy: HttpProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", proxy.url)
    cluster.send_request({"server": "https://api.example", "tls-server-name": None})
    assert [target for target, _ in proxy.tunnels] == ["api.example:443"]
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    cluster.send_request()
    assert len(proxy.tunnels) == 1


def test_a_proxy_that_refuses_is_named_without_its_password(cluster: Cluster) -> None:
    refusing = LoopbackServer(BaseHTTPRequestHandler)
    try:
        with pytest.raises(ClusterUnavailable, match=rf"through the proxy 127\.0\.0\.1:{refusing.port}.*501") as caught:
            cluster.send_request({"proxy-url": f"http://me:hidden@127.0.0.1:{refusing.port}"})
    finally:
        refusing.stop()
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("url", ["ftp://me:hidden@proxy", "http://me:hidden@proxy:port"])
def test_a_proxy_that_cannot_be_used_is_not_gone_around(cluster: Cluster, url: str) -> None:
    with pytest.raises(InvalidArgument, match=r"proxy for .* cannot be used") as caught:
        cluster.send_request({"proxy-url": url})
    assert "hidden" not in str(caught.value)
    assert cluster.requests == []


# Without the official client.


@pytest.mark.parametrize("package", ["kubernetes", "urllib3"])
def test_a_command_that_needs_the_official_client_says_how_to_install_it(package: str) -> None:
    program = (
        f"import sys; sys.modules[{package!r}] = None; from entrepot.cli import main; "
        "sys.exit(main(['publish', '--once', '--node', 'n', '--address', 'unix:///none']))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "pip install 'entrepot[kubernetes]'" in done.stderr
    assert "Traceback" not in done.stderr
