"""The official client beside ours: credentials and routes, on which decision 19 rests, and where the two agree.

A test whose name begins with ``test_only`` fails once the official client learns what it lacks today: then look at that
decision again.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from datetime import datetime
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from entrepot.errors import InvalidArgument
from entrepot_operator.kubernetes import cluster_credentials, credentials, proxies
from entrepot_operator.kubernetes.api import Api
from entrepot_operator.kubernetes.credentials import find
from official_client import (
    VERSION,
    OfficialClient,
    ask_official,
    ask_official_aio,
    ask_ours,
    custom_objects,
    official,
    official_plugin,
)
from tls_servers import (
    NODE,
    PROXY_EXCEPTIONS,
    PROXY_VARIABLES,
    Cluster,
    HttpProxy,
    LoopbackServer,
    kubeconfig_text,
)

PAST = "2020-01-01T00:00:00Z"
ALL = pytest.mark.parametrize("ask", [ask_ours, ask_official, ask_official_aio])
BOTH_OFFICIAL = pytest.mark.parametrize("ask", [ask_official, ask_official_aio])
Ask = Callable[..., None]


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


def write(cluster: Cluster, config: dict[str, Any]) -> Path:
    """Write a kubeconfig without the server's name, which the official client would otherwise want."""
    path = Path(cluster.kubeconfig()).with_name("written")
    config["clusters"][0]["cluster"].pop("tls-server-name", None)
    path.write_text(json.dumps(config))
    return path


# Where they agree.


@ALL
def test_a_context_selects_cluster_user_and_namespace(cluster: Cluster, tmp_path: Path, ask: Ask) -> None:
    config = json.loads(Path(cluster.kubeconfig()).read_text())
    config["users"] += [{"name": "v", "user": {"token": "other"}}]
    config["contexts"] += [{"name": "there", "context": {"cluster": "c", "user": "v", "namespace": "stores"}}]
    path = tmp_path / "contexts"
    path.write_text(json.dumps(config))
    ask(str(path))
    ask(str(path), "there")
    assert cluster.presented() == [("Bearer secret", None), ("Bearer other", None)]
    contexts, current = official.config.list_kube_config_contexts(str(path))
    assert ([context["name"] for context in contexts], current["name"]) == (["here", "there"], "here")
    assert find(str(path), "there").namespace == contexts[1]["context"]["namespace"]


@ALL
@pytest.mark.parametrize("inline", [True, False])
def test_a_client_certificate_is_presented(cluster: Cluster, ask: Ask, inline: bool) -> None:
    pair = cluster.certificate("jane")
    user = {"client-certificate": "jane.crt", "client-key": "jane.key"}
    if inline:
        texts = zip(("client-certificate-data", "client-key-data"), pair.values(), strict=True)
        user = {key: base64.b64encode(text.encode()).decode() for key, text in texts}
    ask(cluster.kubeconfig(user=user))
    assert cluster.presented() == [(None, "jane")]


@ALL
def test_the_certificate_is_checked_against_the_name_that_is_given(cluster: Cluster, ask: Ask) -> None:
    ask(cluster.kubeconfig())
    with pytest.raises(Exception, match=r"(?i)certificate verify failed|not trusted|hostname mismatch"):
        ask(cluster.kubeconfig({"tls-server-name": "other.example"}))
    assert len(cluster.requests) == 1


@ALL
def test_a_program_gives_a_token_or_a_certificate(cluster: Cluster, tmp_path: Path, ask: Ask) -> None:
    for name, status in (("token", {"token": "t"}), ("certificate", cluster.certificate("jane"))):
        (tmp_path / name).mkdir()
        ask(cluster.kubeconfig(user=official_plugin(tmp_path / name, status)))
    assert cluster.presented() == [("Bearer t", None), (None, "jane")]


@ALL
def test_the_proxy_of_the_environment_is_used(
    cluster: Cluster, proxy: HttpProxy, monkeypatch: pytest.MonkeyPatch, ask: Ask
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", proxy.url)
    config = json.loads(Path(cluster.kubeconfig({"server": "https://api.example"})).read_text())
    ask(str(write(cluster, config)))
    assert proxy.tunnels == [("api.example:443", None)]


def test_a_pods_token_is_read_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials, "ACCOUNT", tmp_path)
    monkeypatch.setattr(cluster_credentials, "TOKEN_SECONDS", 0.0)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    for name, text in (("token", "old"), ("ca.crt", "an authority"), ("namespace", "stores")):
        (tmp_path / name).write_text(text)
    configuration = official.client.Configuration()
    loader = official.config.incluster_config.InClusterConfigLoader(str(tmp_path / "token"), str(tmp_path / "ca.crt"))
    loader.load_and_set(configuration)
    ours = credentials.in_cluster()
    assert ours is not None
    assert (configuration.host, configuration.get_api_key_with_prefix("BearerToken")) == (ours.server, "bearer old")
    assert ours.headers() == [("Authorization", "Bearer old")]
    (tmp_path / "token").write_text("new")
    loader.token_expires_at = datetime.now()
    assert configuration.get_api_key_with_prefix("BearerToken") == "bearer new"
    assert ours.headers() == [("Authorization", "Bearer new")]


def test_server_side_apply_writes_the_same(server: Any) -> None:
    body = {"apiVersion": "x/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": {"size": 1}}
    server.api().apply("/apis/x/v1/namespaces/n/things/a", body, "me")
    custom_objects(server.url).patch_namespaced_custom_object(
        *("x", "v1", "n", "things", "b", {**body, "metadata": {"name": "b"}}),
        field_manager="me",
        force=True,
        _content_type="application/apply-patch+yaml",
    )
    ours, theirs = server.of("things").values()
    assert (ours["spec"], ours["metadata"]["generation"]) == (theirs["spec"], theirs["metadata"]["generation"])


# What only ours does: identity.


@BOTH_OFFICIAL
def test_only_ours_impersonates(cluster: Cluster, ask: Ask) -> None:
    user = {"token": "secret", "as": "jane", "as-uid": "42", "as-groups": ["x"], "as-user-extra": {"why": ["test"]}}
    config = cluster.kubeconfig(user=user)
    ask_ours(config)
    ask(config)
    ours, theirs = (
        {name for name in headers if name.lower().startswith("impersonate")} for headers, _ in cluster.requests
    )
    assert ours == {"Impersonate-User", "Impersonate-Uid", "Impersonate-Group", "Impersonate-Extra-why"}
    assert not theirs, "the request had the permissions of whoever is logged in"


@BOTH_OFFICIAL
def test_only_ours_refuses_what_it_does_not_know(cluster: Cluster, ask: Ask) -> None:
    for config in (
        cluster.kubeconfig(user={"token": "secret", "impersonate": "jane"}),
        cluster.kubeconfig({"proxy": "http://127.0.0.1:9"}, user={"token": "secret"}),
    ):
        with pytest.raises(InvalidArgument, match="not supported"):
            ask_ours(config)
    ask(config)
    assert cluster.presented() == [("Bearer secret", None)]


@BOTH_OFFICIAL
def test_only_ours_sends_nothing_if_the_program_fails(cluster: Cluster, tmp_path: Path, ask: Ask) -> None:
    user = official_plugin(tmp_path, {"clientCertificateData": "a certificate without its key"})
    config = cluster.kubeconfig(user=user)
    with pytest.raises(InvalidArgument, match="clientKeyData is missing"):
        ask_ours(config)
    ask(config)
    assert cluster.presented() == [(None, None)], "one request, by nobody"
    (tmp_path / "login").write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(InvalidArgument, match="exited with code 1"):
        ask_ours(config)
    ask(config)
    assert cluster.presented() == [(None, None)], "one request, by nobody"


@BOTH_OFFICIAL
def test_only_ours_presents_token_and_certificate_together(cluster: Cluster, tmp_path: Path, ask: Ask) -> None:
    config = cluster.kubeconfig(user=official_plugin(tmp_path, {"token": "t", **cluster.certificate("jane")}))
    ask_ours(config)
    ask(config)
    assert cluster.presented() == [("Bearer t", "jane"), ("Bearer t", None)]


@BOTH_OFFICIAL
def test_only_ours_replaces_a_certificate_that_expires(cluster: Cluster, tmp_path: Path, ask: Ask) -> None:
    first, second = ({**cluster.certificate(name), "expirationTimestamp": PAST} for name in ("jane", "john"))
    for place, (client, names) in enumerate([(ask_ours, ["jane", "john"]), (ask, ["jane", "jane"])]):
        (tmp_path / str(place)).mkdir()
        config = cluster.kubeconfig(user=official_plugin(tmp_path / str(place), first, second))
        client(config, times=2)
        assert [name for _, name in cluster.presented()] == names


@pytest.mark.parametrize(
    ("ask", "seen"), [(ask_ours, "t-1"), (ask_official, "t-1"), (ask_official_aio, "t-0")], ids=["ours", "", "aio"]
)
def test_only_the_official_client_with_asyncio_keeps_a_token_that_expires(
    cluster: Cluster, tmp_path: Path, ask: Ask, seen: str
) -> None:
    printed = ({"token": "t-0", "expirationTimestamp": PAST}, {"token": "t-1"})
    ask(cluster.kubeconfig(user=official_plugin(tmp_path, *printed)), times=2)
    assert cluster.presented()[-1] == (f"Bearer {seen}", None)


@BOTH_OFFICIAL
def test_only_ours_replaces_a_token_that_is_refused(cluster: Cluster, tmp_path: Path, ask: Ask) -> None:
    for place, client in enumerate([ask_ours, ask]):
        (tmp_path / str(place)).mkdir()
        config = cluster.kubeconfig(user=official_plugin(tmp_path / str(place), {"token": "old"}, {"token": "new"}))
        cluster.refused = 1
        if client is ask_ours:
            client(config)
        else:
            with pytest.raises(Exception, match="401"):
                client(config)
    assert [token for token, _ in cluster.presented()] == ["Bearer old", "Bearer new", "Bearer old"]


def test_only_ours_reads_the_token_file_of_a_kubeconfig_again(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_credentials, "TOKEN_SECONDS", 0.0)
    (tmp_path / "token").write_text("old")
    config = cluster.kubeconfig(user={"tokenFile": "token"})
    ours, theirs = Api(find(config), patience=0), OfficialClient(config)
    for token in ("old", "new"):
        (tmp_path / "token").write_text(token)
        ours.get(NODE)
        theirs.get()
    assert [token for token, _ in cluster.presented()] == ["Bearer old", "Bearer old", "Bearer new", "Bearer old"]


def test_only_ours_takes_the_current_context_of_the_first_file(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As kubectl does."""
    config = json.loads(Path(cluster.kubeconfig()).read_text())
    contexts = [{"name": "there", "context": {"cluster": "c", "user": "v"}}]
    other = {"users": [{"name": "v", "user": {"token": "other"}}], "contexts": contexts, "current-context": "there"}
    (tmp_path / "second").write_text(json.dumps(other))
    monkeypatch.setenv("KUBECONFIG", f"{write(cluster, config)}:{tmp_path / 'second'}")
    assert find().token == "secret"
    chosen = OfficialClient(f"{write(cluster, config)}:{tmp_path / 'second'}").configuration
    assert chosen.get_api_key_with_prefix("BearerToken") == "Bearer other"


# What only ours does: the route.


@ALL
def test_the_proxy_of_the_kubeconfig_is_used(cluster: Cluster, proxy: HttpProxy, ask: Ask) -> None:
    ask(cluster.kubeconfig({"proxy-url": proxy.url}))
    assert len(cluster.requests) == 1
    # The official client with threads asked the server directly before version 37.
    assert bool(proxy.tunnels) == (ask is not ask_official or VERSION >= 37)


def test_only_ours_reads_the_proxy_variables_as_kubectl_does(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    different = []
    for excepted, url, through in PROXY_EXCEPTIONS:
        monkeypatch.setenv("NO_PROXY", excepted)
        theirs = OfficialClient(cluster.kubeconfig({"server": url})).uses_proxy
        assert (proxies.from_environment(url) is not None) == through
        if theirs != through:
            different.append((excepted, url))
    assert set(different) >= {
        ("*.example", "https://api.example"),
        (".api.example", "https://api.example"),
        ("api.example:443", "https://api.example"),
        ("[fd00::1]:443", "https://[fd00::1]"),
        ("", "https://localhost:6443"),
        ("", "https://[::1]"),
    }
    monkeypatch.delenv("NO_PROXY")
    monkeypatch.setenv("HTTP_PROXY", "http://other:3128")
    ours = proxies.from_environment("https://api.example")
    assert ours is not None
    assert ours.host == "proxy"
    if VERSION < 37:
        assert official.client.Configuration().proxy == "http://other:3128", "although the server is at https://"


@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
@BOTH_OFFICIAL
def test_only_ours_refuses_to_turn_off_the_check_of_certificates_by_a_string(cluster: Cluster, ask: Ask) -> None:
    config = cluster.kubeconfig({"insecure-skip-tls-verify": "false", "tls-server-name": "other.example"})
    with pytest.raises(InvalidArgument, match="true or false, not 'false'"):
        ask_ours(config)
    ask(config)
    assert len(cluster.requests) == 1, "although the certificate is for another name"


@BOTH_OFFICIAL
def test_only_ours_refuses_to_send_a_token_in_the_clear(tmp_path: Path, ask: Ask) -> None:
    tokens: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            tokens.append(self.headers["Authorization"])
            self.send_error(404)

        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing."""

    clear = LoopbackServer(Handler)
    try:
        config = tmp_path / "config"
        config.write_text(kubeconfig_text({"token": "secret"}, {"server": f"http://127.0.0.1:{clear.port}"}))
        with pytest.raises(InvalidArgument, match="in the clear"):
            ask_ours(str(config))
        with pytest.raises(Exception, match="404"):
            ask(str(config))
    finally:
        clear.stop()
    assert tokens == ["Bearer secret"]
