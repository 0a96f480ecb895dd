"""URLs of directories: what is accepted, what is refused and how, users, passwords and TLS on real servers."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from directory_servers import EtcdServer, RedisServer, Server, free_port
from entrepot.errors import AccessDenied, DirectoryUnavailable, InvalidArgument
from entrepot_cluster.directory import open_directory
from entrepot_cluster.directory.backends.etcd_gateway import EtcdAccess, EtcdGateway
from entrepot_cluster.directory.opening import _parse


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("", "has the form"),
        ("http://host/name", "begins with 'http'"),
        ("etcd://host:2379", "cluster's name"),
        ("etcd://host:2379/", "cluster's name"),
        ("etcd://host:2379/a b", "cluster's name"),
        ("etcd://host:2379/a/b", "nothing but the cluster's name"),
        ("etcd://host:2379/-a", "cluster's name"),
        ("etcd:///name", "invalid host"),
        ("etcd://host:port/name", "port"),
        ("etcd://host:99999/name", "port"),
        ("etcd://a,,b/name", "invalid host"),
        ("etcd://[::1/name", "invalid"),
        ("redis://a,b/name", "one host"),
        ("redis://a/name?db=x", "db must be a number"),
        ("etcd://a/name?db=1", "allowed with etcd: compact, password_file"),
        ("etcd://a/name?compact=maybe", "yes or no"),
        ("etcd://a/name#part", "unknown options"),
        ("etcd://a/name?password_file=/no/such/file", "cannot be read"),
        ("etcds://a/name?ca=/no/such/file", "cannot be read"),
        ("embedded://host/path/name", "on this machine"),
        ("embedded:name", "on this machine"),
        ("embedded:///no/such/folder/name", "create it first"),
    ],
    ids=range(22),
)
def test_an_invalid_url_is_refused(url: str, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        open_directory(url)


@pytest.mark.parametrize("timeout", [0.0, -1.0, float("nan")])
def test_a_timeout_is_positive(timeout: float) -> None:
    with pytest.raises(InvalidArgument, match="positive"):
        open_directory("etcd://a/name", timeout=timeout)


def test_passwords_are_in_no_message() -> None:
    for url in ("etcd://user:secret@h/a b", "etcd://user:secret@h:0x/n", "redis://:secret@a,b/n", "x://u:secret@h/n"):
        with pytest.raises(InvalidArgument) as raised:
            open_directory(url)
        assert "secret" not in str(raised.value)
    with pytest.raises(DirectoryUnavailable) as unreachable:
        open_directory(f"etcd://user:secret@127.0.0.1:{free_port()}/name")
    assert "secret" not in str(unreachable.value)


def test_the_parts_of_a_url(tmp_path: Path) -> None:
    address = _parse("etcd://me:p%40ss@one,[::1]:7,three:9/prod.eu-1?compact=no")
    assert (address.user, address.password, address.name) == ("me", "p@ss", "prod.eu-1")
    assert address.hosts == (("one", 2379), ("::1", 7), ("three", 9))
    (tmp_path / "secret").write_text("from a file\n")
    address = _parse(f"rediss://me@host/prod?password_file={tmp_path}/secret&db=2")
    assert (address.password, address.hosts) == ("from a file", (("host", 6379),))


class _EtcdWithUsers(EtcdServer):
    """With the users root and entrepot, whose passwords are "rootpw" and "secret"; entrepot may use its keys only."""

    def enable(self) -> None:
        gateway = EtcdGateway(EtcdAccess([("127.0.0.1", self.port)]), 5.0)
        gateway.call("auth/role/add", {"name": "entrepot"})
        grant = {"perm": {"permType": "READWRITE", "key": "ZW50cmVwb3Qv", "range_end": "ZW50cmVwb3Qw"}}
        gateway.call("auth/role/grant", {"name": "entrepot"} | grant)
        for user, password, role in (("root", "rootpw", "root"), ("entrepot", "secret", "entrepot")):
            if role == "root":
                gateway.call("auth/role/add", {"name": role})
            gateway.call("auth/user/add", {"name": user, "password": password})
            gateway.call("auth/user/grant", {"user": user, "role": role})
        gateway.call("auth/enable", {})
        gateway.close()


def test_etcd_with_users() -> None:
    server = _EtcdWithUsers()
    try:
        server.start()
        server.enable()
        place = f"127.0.0.1:{server.port}/users"
        with pytest.raises(AccessDenied):
            open_directory(f"etcd://{place}")
        with pytest.raises(AccessDenied, match="refuses user 'entrepot'"):
            open_directory(f"etcd://entrepot:wrong@{place}")
        with open_directory(f"etcd://entrepot:secret@{place}") as directory:
            registration = directory.register("0" * 32, "h", [], protocol=1, started_at=0.0, lease_seconds=30.0)
            with directory.watch() as watch:
                assert len(watch.wait(10.0)) == 1
                assert watch.wait(0.0) == []
            server.kill()
            server.start()
            registration.renew()  # with a new token: a restarted etcd has forgotten the one before
            while not directory.sweep():
                pass
    finally:
        server.end()


class _RedisWithPassword(RedisServer):
    def command(self) -> Sequence[str]:
        return [*super().command(), "--requirepass", "secret"]

    def ready(self) -> bool:
        return True


def test_redis_with_a_password(tmp_path: Path) -> None:
    server = _RedisWithPassword()
    try:
        server.start()
        place = f"127.0.0.1:{server.port}/protected"
        with pytest.raises(AccessDenied):
            open_directory(f"redis://{place}")
        with pytest.raises(AccessDenied):
            open_directory(f"redis://:wrong@{place}")
        (tmp_path / "password").write_text("secret\n")
        for url in (f"redis://:secret@{place}", f"redis://{place}?password_file={tmp_path}/password&db=3"):
            with open_directory(url) as directory:
                assert directory.instances() == []
    finally:
        server.end()


class _EtcdWithTls(EtcdServer):
    """With TLS, and for clients with a certificate only."""

    scheme = "etcds"

    def __init__(self, certificate: Path, key: Path) -> None:
        super().__init__()
        self._files = certificate, key

    def command(self) -> Sequence[str]:
        certificate, key = self._files
        client = f"https://127.0.0.1:{self.port}"
        others = [part for part in super().command() if "client-urls" not in part]
        urls = [f"--listen-client-urls={client}", f"--advertise-client-urls={client}"]
        trust = ["--client-cert-auth", f"--trusted-ca-file={certificate}"]
        return [*others, *urls, f"--cert-file={certificate}", f"--key-file={key}", *trust]

    def ready(self) -> bool:
        return True


class _RedisWithTls(RedisServer):
    """The same for Redis."""

    scheme = "rediss"

    def __init__(self, certificate: Path, key: Path) -> None:
        super().__init__()
        self._files = certificate, key

    def command(self) -> Sequence[str]:
        certificate, key = (str(path) for path in self._files)
        command = [part if part != str(self.port) else "0" for part in super().command()]
        files = ["--tls-cert-file", certificate, "--tls-key-file", key, "--tls-ca-cert-file", certificate]
        return [*command, "--tls-port", str(self.port), *files]

    def ready(self) -> bool:
        return True


@pytest.mark.parametrize("kind", [_EtcdWithTls, _RedisWithTls], ids=["etcd", "redis"])
def test_tls_in_both_directions(kind: type[_EtcdWithTls] | type[_RedisWithTls], tmp_path: Path) -> None:
    certificate, key = _self_signed(tmp_path, "server")
    (tmp_path / "other").mkdir()
    foreign, _ = _self_signed(tmp_path / "other", "other")
    server: Server = kind(certificate, key)
    try:
        server.start()
        trusted = f"{server.url('tls')}?ca={certificate}"
        with open_directory(f"{trusted}&cert={certificate}&key={key}") as directory:
            registration = directory.register("0" * 32, "h", [], protocol=1, started_at=0.0)
            with directory.watch() as watch:
                assert len(watch.wait(10.0)) == 1
            registration.depart()
        with pytest.raises(DirectoryUnavailable):  # no certificate of the client
            open_directory(trusted)
        with pytest.raises(DirectoryUnavailable, match=r"(?i)certificate"):
            open_directory(f"{server.url('tls')}?ca={foreign}&cert={certificate}&key={key}")
        with pytest.raises(InvalidArgument, match="needs cert"):
            open_directory(f"{trusted}&key={key}")
        with pytest.raises(DirectoryUnavailable):
            open_directory(f"{server.url('tls').replace('s://', '://', 1)}")
    finally:
        server.end()


def _self_signed(folder: Path, name: str) -> tuple[Path, Path]:
    """Files with a certificate for 127.0.0.1, which is its own authority, and with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.timezone.utc)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    paths = folder / "certificate.pem", folder / "key.pem"
    paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    private = serialization.PrivateFormat.PKCS8
    paths[1].write_bytes(key.private_bytes(serialization.Encoding.PEM, private, serialization.NoEncryption()))
    return paths
