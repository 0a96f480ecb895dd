"""TLS, tokens, clusters and instances: who refuses whom, and what both are told."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import entrepot
import numpy as np
import pytest
from entrepot.errors import AccessDenied, EntrepotError, InstanceLost, InvalidArgument
from entrepot_cluster.transport.endpoints import Wanted
from entrepot_cluster.transport.fetching import fetch
from entrepot_cluster.transport.handshake import Identity
from entrepot_cluster.transport.peer import PeerConnections
from entrepot_cluster.transport.security import TlsFiles, TransportSecurity
from entrepot_cluster.transport.server import GatewayServer
from entrepot_cluster.transport.store_endpoints import StoreSink, StoreSource

pytest.importorskip("cryptography")
from certificates import Authority
from tcp_relay import TcpRelay

Serve = Callable[..., GatewayServer]
Connect = Callable[..., PeerConnections]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """The cluster's CA."""
    return Authority(tmp_path / "ca")


def _token(path: Path, token: str) -> TransportSecurity:
    path.write_text(token + "\n")
    path.chmod(0o600)
    return TransportSecurity(token_file=path)


@pytest.mark.parametrize("with_token", [False, True], ids=["TLS", "TLS and token"])
def test_objects_over_tls(
    with_token: bool,
    source: entrepot.Store,
    sink: entrepot.Store,
    serve: Serve,
    connect: Connect,
    authority: Authority,
    tmp_path: Path,
) -> None:
    ids = [source.put(np.full(n, 3, dtype=np.uint8)) for n in (10, 100_000, 3_000_000)]
    token = tmp_path / "token"
    token.write_text("a token of at least 16 bytes")
    token.chmod(0o440)
    first, second = (
        TransportSecurity(tls=authority.gateway(name), token_file=token if with_token else None)
        for name in ("first", "second")
    )
    server = serve(security=first)
    peer = connect(server.address, security=second)
    outcomes = fetch(peer, [Wanted(oid.binary) for oid in ids], StoreSink(sink))
    assert [outcome.error for outcome in outcomes] == [None] * 3
    assert all((sink.get(oid) == 3).all() for oid in ids)


def _refusal(peer: PeerConnections) -> str:
    with pytest.raises(AccessDenied) as caught:
        peer.ping()
    return str(caught.value)


def test_certificates_that_are_refused(serve: Serve, connect: Connect, authority: Authority, tmp_path: Path) -> None:
    good = authority.gateway("good")
    other = Authority(tmp_path / "other")
    server = serve(security=TransportSecurity(tls=good))
    stranger = TransportSecurity(tls=other.gateway("stranger", ca=good.ca))  # trusts us, and is not trusted
    assert "refused this gateway's certificate" in _refusal(connect(server.address, security=stranger))
    expired = TransportSecurity(tls=authority.gateway("expired", days=-1))
    assert "refused this gateway's certificate" in _refusal(connect(server.address, security=expired))
    distrusting = TransportSecurity(tls=other.gateway("distrusting"))
    assert "this gateway refused the certificate of" in _refusal(connect(server.address, security=distrusting))
    old = serve(security=TransportSecurity(tls=authority.gateway("old", days=-1)))
    message = _refusal(connect(old.address, security=TransportSecurity(tls=good)))
    assert "this gateway refused the certificate of" in message
    assert "expired" in message
    with pytest.raises(EntrepotError):
        connect(server.address).ping()  # without TLS
    connect(server.address, security=TransportSecurity(tls=authority.gateway("another"))).ping()


def test_renewed_certificates_take_effect(serve: Serve, connect: Connect, authority: Authority) -> None:
    good = authority.gateway("good")
    files = authority.gateway("renewed", days=-1)
    server = serve(security=TransportSecurity(tls=files))
    peer = connect(server.address, security=TransportSecurity(tls=good))
    _refusal(peer)
    renewed = authority.gateway("fresh")
    for old, new in ((files.certificate, renewed.certificate), (files.key, renewed.key)):
        os.replace(new, old)
    peer.ping()


def test_files_that_cannot_be_used(connect: Connect, serve: Serve, authority: Authority, tmp_path: Path) -> None:
    server = serve(security=TransportSecurity(tls=authority.gateway("good")))
    missing = TlsFiles(tmp_path / "none", tmp_path / "none", tmp_path / "none")
    assert "cannot be used" in _refusal(connect(server.address, security=TransportSecurity(tls=missing)))
    absent = TransportSecurity(token_file=tmp_path / "none")
    assert "cannot be read" in _refusal(connect(serve(security=absent).address))
    assert "has 5 bytes" in _refusal(connect(serve().address, security=_token(tmp_path / "short", "short")))


@pytest.mark.parametrize("mode", [0o604, 0o620, 0o644, 0o777])
def test_secrets_that_other_users_can_read_or_write_are_refused(
    connect: Connect, serve: Serve, authority: Authority, tmp_path: Path, mode: int
) -> None:
    address = serve().address
    token = _token(tmp_path / "token", "the token of the cluster")
    (tmp_path / "token").chmod(mode)
    assert f"is open to other users (mode {mode:04o})" in _refusal(connect(address, security=token))
    with pytest.raises(AccessDenied, match="is open to other users"):
        token.check_files()
    files = authority.gateway("open")
    files.key.chmod(mode)
    with pytest.raises(AccessDenied, match="is open to other users"):
        TransportSecurity(tls=files).check_files()
    files.key.chmod(0o640)  # as Kubernetes gives Secrets to containers
    TransportSecurity(tls=files).check_files()


def test_tokens(serve: Serve, connect: Connect, tmp_path: Path) -> None:
    security = _token(tmp_path / "token", "the token of the cluster")
    server = serve(security=security)
    peer = connect(server.address, security=security)
    peer.ping()
    other = _token(tmp_path / "other", "the token of another cluster")
    message = _refusal(connect(server.address, security=other))
    assert "refused its peer: the peer's token is not the cluster's" in message
    assert "requires a token" in _refusal(connect(server.address))
    open_server = serve()  # which does not prove that it knows the token
    assert "did not prove that it knows" in _refusal(connect(open_server.address, security=security))


def test_a_token_that_changes(serve: Serve, connect: Connect, tmp_path: Path) -> None:
    server = serve(security=_token(tmp_path / "theirs", "the first token of all"))
    peer = connect(server.address, security=_token(tmp_path / "ours", "the first token of all"), idle_seconds=0)
    peer.ping()
    _token(tmp_path / "theirs", "the second token of all")
    assert "or is an old one" in _refusal(peer)
    _token(tmp_path / "ours", "the second token of all")
    peer.ping()


def test_a_token_is_never_sent(serve: Serve, connect: Connect, tmp_path: Path) -> None:
    token = "the token of the cluster"
    security = _token(tmp_path / "token", token)
    seen = bytearray()

    class Listening(TcpRelay):
        def _is_last(self, direction: str, data: bytearray) -> bool:
            seen.extend(data)
            return super()._is_last(direction, data)

    with Listening(serve(security=security).address) as relay:
        connect(relay.address, security=security).ping()
    assert len(seen) > 200
    assert token.encode() not in seen


def test_clusters_and_instances(serve: Serve, connect: Connect) -> None:
    server = serve()
    with PeerConnections(server.address, Identity("another", "fetching")) as peer:
        message = _refusal(peer)
    assert "'another'" in message
    assert "'tests'" in message
    connect(server.address, instance="serving").ping()
    with pytest.raises(InstanceLost, match=r"is the instance serving, and gone was expected"):
        connect(server.address, instance="gone").ping()


def test_other_addresses_than_loopback_need_protection(source: entrepot.Store, tmp_path: Path) -> None:
    own = Identity("tests", "serving")
    with pytest.raises(InvalidArgument, match=r"0\.0\.0\.0 can be reached from other hosts"):
        GatewayServer("0.0.0.0:0", own, StoreSource(source))
    with pytest.raises(InvalidArgument, match=r"203\.0\.113\.1 can be reached"):
        PeerConnections("203.0.113.1:1", own).ping()
    for security in (TransportSecurity(insecure=True), _token(tmp_path / "token", "the token of the cluster")):
        with GatewayServer("0.0.0.0:0", own, StoreSource(source), security=security) as server:
            port = server.address.rpartition(":")[2]
            with PeerConnections(f"127.0.0.1:{port}", own, security=security) as peer:
                peer.ping()


@pytest.mark.parametrize("address", ["", "host", "host:", "host:port", ":7", "host:70000", "host:-1"])
def test_malformed_addresses(address: str) -> None:
    with pytest.raises(InvalidArgument, match="host:port"):
        PeerConnections(address, Identity("tests", "fetching"))


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6")
def test_ipv6(source: entrepot.Store) -> None:
    own = Identity("tests", "serving")
    try:
        server = GatewayServer("[::1]:0", own, StoreSource(source))
    except entrepot.StoreUnavailable as error:
        pytest.skip(f"no IPv6: {error}")
    with server, PeerConnections(server.address, own) as peer:
        assert server.address.startswith("[::1]:")
        peer.ping()
