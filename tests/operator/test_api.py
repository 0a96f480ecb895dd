"""The API client: what it retries, when it gives up, and how it authenticates."""

from __future__ import annotations

import base64
import json
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from entrepot.errors import AccessDenied, InvalidArgument
from entrepot_operator.kubernetes import kubeconfig
from entrepot_operator.kubernetes.credentials import ClusterCredentials, find
from entrepot_operator.kubernetes.errors import ClusterRefused, ClusterUnavailable, ListExpired, ResourceNotFound

NODE = "/api/v1/nodes/node-a"


@pytest.mark.parametrize("status", [429, 500, 503, 504])
def test_what_may_succeed_later_is_tried_again(server: Any, status: int) -> None:
    server.failures = [(status, {}, {"message": "busy"})] * 3
    assert server.api().get(NODE)["metadata"]["name"] == "node-a"
    assert len(server.requests) == 4


def test_retry_after_is_respected_within_the_timeout(server: Any) -> None:
    server.failures = [(429, {"Retry-After": "30"}, {"message": "too many requests"})]
    with pytest.raises(ClusterUnavailable, match=r"429.*too many requests"):
        server.api(patience=5).get(NODE)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("status", "kind", "match"),
    [
        (401, AccessDenied, "log in"),
        (403, AccessDenied, "a Role with this verb"),
        (404, ResourceNotFound, "404"),
        (409, ClusterRefused, "409"),
        (422, ClusterRefused, "broken"),
    ],
)
def test_what_is_refused_is_not_tried_again(server: Any, status: int, kind: type[Exception], match: str) -> None:
    server.failures = [(status, {}, {"message": "broken", "reason": "Because"})]
    with pytest.raises(kind, match=match):
        server.api().get(NODE)
    assert len(server.requests) == 1


def test_a_quota_is_named_as_the_cause(server: Any) -> None:
    server.failures = [(403, {}, {"message": "exceeded quota: objects"})]
    with pytest.raises(AccessDenied, match="raise the ResourceQuota"):
        server.api().apply("/x", {}, "me")


def test_a_server_that_is_not_there_is_named() -> None:
    from entrepot_operator.kubernetes.api import Api

    with pytest.raises(ClusterUnavailable, match=r"GET .*http://127\.0\.0\.1:9 does not respond"):
        Api(ClusterCredentials("http://127.0.0.1:9"), patience=0).get(NODE)


def test_an_answer_that_is_no_json_is_no_answer(server: Any) -> None:
    server.failures = [(200, {}, "<html>a proxy's page</html>")]
    with pytest.raises(ClusterUnavailable, match="a proxy's page"):
        server.api(patience=0).get(NODE)


def test_an_answer_without_end_is_not_read(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("entrepot_operator.kubernetes.api.MAX_ANSWER_BYTES", 20)
    with pytest.raises(ClusterUnavailable, match="exceeds 20 bytes"):
        server.api(patience=0).get(NODE)


def test_a_server_that_accepts_and_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    from entrepot_operator.kubernetes.api import Api

    monkeypatch.setattr("entrepot_operator.kubernetes.api.REQUEST_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ClusterUnavailable, match=r"does not respond.*timed out"):
            Api(ClusterCredentials(url), patience=0).get(NODE)


def test_long_lists_come_in_pages_and_begin_again_when_they_expire(server: Any) -> None:
    for index in range(1200):
        server.put(f"/api/v1/nodes/n{index}", {"metadata": {"name": f"n{index}"}})
    api = server.api()
    assert len(api.read_all("/api/v1/nodes")) == 1201
    assert len(server.requests) == 3
    expired: tuple[int, dict[str, str], Any] = (
        410,
        {},
        {"reason": "Expired", "message": "the provided continue parameter is too old"},
    )
    server.failures = [None, expired]
    assert len(api.read_all("/api/v1/nodes")) == 1201
    server.failures = [None, expired, None, expired, None, expired]
    with pytest.raises(ListExpired):
        api.read_all("/api/v1/nodes")


def test_time_is_the_servers(server: Any) -> None:
    api = server.api()
    api.get(NODE)
    assert abs((api.now() - server.now).total_seconds()) < 5


def test_time_does_not_go_back_when_the_server_repeats_its_second(server: Any, wait_until: Any) -> None:
    api = server.api()
    api.get(NODE)
    wait_until(lambda: (api.now() - server.now).total_seconds() > 0.05, "a part of a second")
    before = api.now()
    api.get(NODE)
    assert api.now() >= before
    server.pass_time(30)
    api.get(NODE)
    assert (api.now() - before).total_seconds() > 29


def test_deleting_what_is_gone_is_no_error(server: Any) -> None:
    api = server.api()
    assert api.delete(NODE)
    assert not api.delete(NODE)


def write(path: Path, **parts: Any) -> Path:
    config: dict[str, Any] = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "stores"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://10.0.0.1:6443/prefix"}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
    }
    path.write_text(json.dumps({**config, **parts}))
    return path


def test_a_kubeconfig_is_read_and_its_secrets_are_not_shown(tmp_path: Path) -> None:
    access = find(str(write(tmp_path / "config")))
    assert (access.server, access.namespace, access.prefix) == ("https://10.0.0.1:6443/prefix", "stores", "/prefix")
    assert access.headers() == [("Authorization", "Bearer secret")]
    assert "secret" not in repr(access)


def test_several_kubeconfigs_are_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = write(tmp_path / "1", clusters=[], users=[])
    second = write(tmp_path / "2", **{"current-context": "other"})
    monkeypatch.setenv("KUBECONFIG", f"{first}:{tmp_path / 'none'}:{second}")
    assert find().server == "https://10.0.0.1:6443/prefix"


@pytest.mark.parametrize(
    ("parts", "match"),
    [
        ({"current-context": ""}, "--context"),
        ({"contexts": []}, "no context named 'here'"),
        ({"users": []}, "no user named 'u'"),
        ({"clusters": [{"name": "c", "cluster": {"server": "10.0.0.1"}}]}, "must be a URL"),
        ({"clusters": [{"name": "c", "cluster": {"server": "http://10.0.0.1"}}]}, "in the clear"),
        (
            {"clusters": [{"name": "c", "cluster": {"server": "https://a", "certificate-authority-data": "?"}}]},
            "not base64",
        ),
        ({"users": [{"name": "u", "user": {"auth-provider": {"name": "gcp"}}}]}, "auth-provider.*not supported"),
        (
            {"clusters": [{"name": "c", "cluster": {"server": "https://a", "proxy-url": "socks5://p"}}]},
            "proxy-url.*SOCKS",
        ),
    ],
)
def test_a_kubeconfig_that_cannot_be_used_says_why(tmp_path: Path, parts: dict[str, Any], match: str) -> None:
    with pytest.raises(InvalidArgument, match=match):
        find(str(write(tmp_path / "config", **parts)))


def test_without_any_cluster_it_says_where_it_looked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(InvalidArgument, match=r"none.*--kubeconfig"):
        find()


def plugin(tmp_path: Path, body: str) -> Path:
    program = tmp_path / "login"
    program.write_text(f"#!{sys.executable}\nimport json, os, sys\n{body}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return write(
        tmp_path / "config",
        users=[{"name": "u", "user": {"exec": {"command": str(program), "env": [{"name": "WHO", "value": "me"}]}}}],
    )


def test_a_program_gives_the_token(tmp_path: Path) -> None:
    body = (
        "assert json.loads(os.environ['KUBERNETES_EXEC_INFO'])['kind'] == 'ExecCredential'\n"
        "print(json.dumps({'status': {'token': 'for ' + os.environ['WHO']}}))"
    )
    assert find(str(plugin(tmp_path, body))).headers() == [("Authorization", "Bearer for me")]


@pytest.mark.parametrize(
    ("body", "match"),
    [("sys.exit('not logged in')", "not logged in"), ("print('{}')", "printed no token and no client certificate")],
)
def test_a_program_that_gives_none_says_why(tmp_path: Path, body: str, match: str) -> None:
    with pytest.raises(InvalidArgument, match=match):
        find(str(plugin(tmp_path, body))).headers()


def test_a_token_is_read_anew_once_when_it_is_refused(server: Any, tmp_path: Path) -> None:
    from entrepot_operator.kubernetes.api import Api

    class InTheClear(ClusterCredentials):
        def __post_init__(self) -> None:
            """Skip the check against tokens over plain HTTP: the test's server has no certificate."""

    file = tmp_path / "token"
    file.write_text("old\n")
    access = InTheClear(server.url, token_file=file)
    api = Api(access)
    api.get(NODE)
    file.write_text("new\n")
    server.failures = [(401, {}, {"message": "expired"})]
    api.get(NODE)
    assert access.headers() == [("Authorization", "Bearer new")]
    server.failures = [(401, {}, {"message": "expired"})] * 2
    with pytest.raises(AccessDenied):
        api.get(NODE)


def test_certificates_in_a_kubeconfig_become_files_of_the_owner(tmp_path: Path) -> None:
    user = {"client-certificate-data": base64.b64encode(b"cert").decode(), "client-key": "key.pem"}
    access = kubeconfig.read(str(write(tmp_path / "config", users=[{"name": "u", "user": user}])))
    assert access.key == str(tmp_path / "key.pem")
    assert access.certificate is not None
    certificate = Path(access.certificate)
    assert (certificate.read_bytes(), certificate.stat().st_mode & 0o777) == (b"cert", 0o600)
    with pytest.raises(InvalidArgument, match="cannot be used"):
        access.tls()


def test_a_token_is_read_anew_from_time_to_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "token"
    file.write_text("old")
    access = ClusterCredentials("https://a", token_file=file)
    assert access.headers() == [("Authorization", "Bearer old")]
    file.write_text("new")
    assert access.headers() == [("Authorization", "Bearer old")]
    monkeypatch.setattr("entrepot_operator.kubernetes.cluster_credentials.TOKEN_SECONDS", 0.0)
    assert access.headers() == [("Authorization", "Bearer new")]


def test_a_program_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("entrepot_operator.kubernetes.exec_credentials.PLUGIN_SECONDS", 0.3)
    with pytest.raises(InvalidArgument, match=r"login.*cannot be run.*timed out"):
        find(str(plugin(tmp_path, "import time; time.sleep(30)"))).headers()


def test_certificates_are_removed_when_the_process_ends(tmp_path: Path) -> None:
    user = {"client-certificate-data": base64.b64encode(b"cert").decode()}
    path = write(tmp_path / "config", users=[{"name": "u", "user": user}])
    program = (
        "import os, sys; from entrepot_operator.kubernetes import kubeconfig; "
        "name = kubeconfig.read(sys.argv[1]).certificate; print(name, os.path.exists(name))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, timeout=60, check=True
    )
    name, existed = done.stdout.split()
    assert existed == "True"
    assert not Path(name).exists()


def test_a_program_whose_tokens_are_all_refused_is_given_up(server: Any, tmp_path: Path) -> None:
    from entrepot_operator.kubernetes.api import Api

    body = "import time; print(json.dumps({'status': {'token': str(time.time_ns())}}))"
    credentials = find(str(plugin(tmp_path, body)))

    class InTheClear(ClusterCredentials):
        def __post_init__(self) -> None:
            """Skip the check against tokens over plain HTTP: the test's server has no certificate."""

    server.failures = [(401, {}, {"message": "unknown token"})] * 5
    with pytest.raises(AccessDenied, match="unknown token"):
        Api(InTheClear(server.url, plugin=credentials.plugin)).get(NODE)
    assert len(server.requests) == 2


def test_a_pod_uses_its_own_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    monkeypatch.setattr("entrepot_operator.kubernetes.credentials.ACCOUNT", tmp_path)
    for name, text in (("token", "secret\n"), ("ca.crt", "an authority"), ("namespace", "stores\n")):
        (tmp_path / name).write_text(text)
    access = find()
    assert (access.server, access.namespace) == ("https://[fd00::1]:6443", "stores")
    assert access.headers() == [("Authorization", "Bearer secret")]
    (tmp_path / "namespace").unlink()
    with pytest.raises(InvalidArgument, match="service account cannot be used"):
        find()
