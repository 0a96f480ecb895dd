"""Whom ``entrepot ui`` refuses: no token, another one, another origin, a forged host, requests without CSRF's token."""

from __future__ import annotations

import http.client
import os
import signal
import socket
from pathlib import Path
from typing import Any

import httpx
import pytest
from entrepot.cli import main
from entrepot_ui.web.security import LOOPBACK_NAMES, Credentials

DATA = [
    *("/api/session", "/api/overview", "/api/objects", f"/api/objects/{'0' * 40}", f"/api/objects/{'0' * 40}/preview"),
    *("/api/pins", "/api/largest", "/api/cluster", "/api/events", "/api/events/stream", "/metrics"),
]


def test_without_a_token_there_is_no_data(page_server: Any) -> None:
    with page_server.client() as client:
        for path in DATA:
            answer = client.get(path)
            assert answer.status_code == 401, path
            assert "no valid token" in answer.json()["error"]
        answer = client.post("/api/actions/delete", json={"ids": ["0" * 40]})
        assert answer.status_code == 401


def test_another_token_or_cookie_is_refused(page_server: Any) -> None:
    wrong = page_server.token[:-1] + ("a" if page_server.token[-1] != "a" else "b")
    with page_server.client() as client:
        assert client.post("/api/login", headers={"authorization": f"Bearer {wrong}"}).status_code == 401
        assert client.post("/api/login").status_code == 401
        assert client.get("/api/login", headers={"authorization": f"Bearer {wrong}"}).status_code == 405
        assert client.get("/api/overview", headers={"authorization": f"Bearer {wrong}"}).status_code == 401
        assert client.get("/api/overview", headers={"authorization": "Basic eDp5"}).status_code == 401
        port = page_server.url.rpartition(":")[2]
        for cookie in (f"entrepot-ui-{port}={wrong}", f"entrepot-ui-{port}=", "=;;\x22", f"other={page_server.token}"):
            assert client.get("/api/overview", headers={"cookie": cookie}).status_code == 401
        non_ascii = [(b"authorization", "Bearer é".encode("latin-1"))]
        assert client.get("/api/overview", headers=non_ascii).status_code == 401


def test_the_token_itself_is_taken_too(page_server: Any) -> None:
    with page_server.client() as client:
        assert client.get("/api/overview", headers={"authorization": f"Bearer {page_server.token}"}).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "[::2]:80"])
def test_a_forged_host_is_refused(browser: httpx.Client, host: str) -> None:
    for path in ("/", "/assets/main.js", "/api/overview"):
        answer = browser.get(path, headers={"host": host})
        assert answer.status_code == 421, path
        assert "host name" in answer.json()["error"]


def test_two_hosts_are_refused(page_server: Any) -> None:
    name, _, port = page_server.url.removeprefix("http://").partition(":")
    with socket.create_connection((name, int(port)), 30) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\nConnection: close\r\n\r\n")
        response = http.client.HTTPResponse(connection)
        response.begin()
        assert response.status in (400, 421)


@pytest.mark.parametrize("name", sorted(LOOPBACK_NAMES))
def test_each_name_of_loopback_is_a_host(browser: httpx.Client, name: str) -> None:
    assert browser.get("/api/overview", headers={"host": f"{name}:8080"}).status_code == 200
    assert browser.get("/api/overview", headers={"host": name.upper()}).status_code == 200


def test_a_host_that_is_allowed(module_daemon: Any, new_page: Any) -> None:
    with new_page(module_daemon.address, "--allow-host", "Store.example") as server, server.logged_in() as client:
        assert client.get("/api/overview", headers={"host": "store.example"}).status_code == 200
        origin = {"host": "store.example", "origin": "https://store.example"}
        assert client.get("/api/overview", headers=origin).status_code == 200
        assert client.get("/api/overview", headers={"host": "other.example"}).status_code == 421


def test_another_origin_is_refused(browser: httpx.Client, page_server: Any) -> None:
    port = int(page_server.url.rpartition(":")[2])
    for origin in ("http://evil.example", "null", f"http://127.0.0.1:{port + 1}", f"http://localhost:{port}"):
        for method, path in (("GET", "/api/overview"), ("POST", "/api/actions/delete"), ("POST", "/api/login")):
            assert browser.request(method, path, headers={"origin": origin}, json={}).status_code == 403
    for site in ("cross-site", "same-site"):
        assert browser.get("/api/overview", headers={"sec-fetch-site": site}).status_code == 403
    own = {"origin": page_server.url, "sec-fetch-site": "same-origin"}
    assert browser.get("/api/overview", headers=own).status_code == 200


def test_what_changes_something_needs_more_than_the_cookie(browser: httpx.Client, store: Any) -> None:
    oid = store.put(b"stays")
    body = {"ids": [str(oid)]}
    csrf = browser.headers.pop("x-csrf-token")
    assert browser.post("/api/actions/delete", json=body).status_code == 403
    assert browser.post("/api/actions/delete", json=body, headers={"x-csrf-token": csrf[:-1]}).status_code == 403
    form = {"x-csrf-token": csrf, "content-type": "application/x-www-form-urlencoded"}
    assert browser.post("/api/actions/delete", content=b"ids=1", headers=form).status_code == 415
    large = browser.post("/api/actions/delete", json={"ids": ["0" * 2_000_000]}, headers={"x-csrf-token": csrf})
    assert large.status_code == 413
    json_body = {"x-csrf-token": csrf, "content-type": "application/json"}
    chunked = browser.post("/api/actions/delete", content=iter([b"{}"]), headers=json_body)
    assert chunked.status_code == 413
    assert browser.get("/api/actions/delete").status_code == 405
    assert store.exists(oid)
    assert browser.post("/api/actions/delete", json=body, headers={"x-csrf-token": csrf}).status_code == 200
    assert not store.exists(oid)


def test_each_answer_has_the_headers(page_server: Any, browser: httpx.Client) -> None:
    with page_server.client() as stranger:
        answers = [
            *(stranger.get(path) for path in ("/", "/assets/main.js", "/nothing", "/api/overview")),
            stranger.get("/", headers={"host": "evil.example"}),
            browser.get("/api/overview"),
        ]
    for answer in answers:
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in answer.headers
        assert "server" not in answer.headers


def test_the_cookie_is_for_this_server_only(page_server: Any) -> None:
    with page_server.client() as client:
        answer = client.post("/api/login", headers={"authorization": f"Bearer {page_server.token}"})
        cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert page_server.token.lower() not in cookie
    assert page_server.token not in answer.text


def test_no_asset_names_another_server() -> None:
    from importlib.resources import files

    for asset in files("entrepot_ui").joinpath("assets").iterdir():
        text = asset.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "://" not in text, asset.name
        assert "innerHTML" not in text, asset.name


def test_credentials_of_two_servers_differ() -> None:
    first, second = Credentials("a" * 20, 1), Credentials("b" * 20, 1)
    assert len({first.cookie, first.csrf, second.cookie, second.csrf}) == 4


def test_other_addresses_than_loopback_need_a_decision(module_daemon: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ui", "--address", module_daemon.address, "--listen", "0.0.0.0:0"]) == 1
    assert "is not on loopback" in capsys.readouterr().err


def test_the_token_may_come_from_a_file(
    module_daemon: Any, new_page: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "token"
    file.write_text("correct-horse-battery\n")
    file.chmod(0o644)
    command = ["ui", "--address", module_daemon.address, "--listen", "127.0.0.1:0", "--token-file", str(file)]
    assert main(command) == 1
    assert "others may read it" in capsys.readouterr().err
    file.chmod(0o600)
    with new_page(module_daemon.address, "--token-file", str(file)) as server, server.logged_in() as client:
        assert server.token == "correct-horse-battery"
        assert client.get("/api/session").status_code == 200
    file.write_text("short")
    assert main(command) == 1
    assert "16 or more printable characters" in capsys.readouterr().err
    file.unlink()
    assert main(command) == 1
    assert "--token-file" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_when_told_to_while_a_page_is_open(module_daemon: Any, new_page: Any, number: int) -> None:
    with (
        new_page(module_daemon.address) as server,
        server.logged_in() as client,
        client.stream("GET", "/api/events/stream") as stream,
    ):
        assert next(stream.iter_lines())  # it is being served
        os.kill(server.process.pid, number)
        assert server.process.wait(30) == 0
