"""Opens a directory by its URL.

Packages add kinds of directories through the entry-point group ``entrepot.directories``: the URL's scheme, and a
function that takes the parts of the URL, the cluster's name, the options and the timeout, and returns a backend.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from entrepot.errors import InvalidArgument

from entrepot_cluster.directory.backends.interface import Backend
from entrepot_cluster.directory.directory import LOST_SECONDS, Directory

TIMEOUT_SECONDS = 5.0
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}\Z")
_ETCD_PORT = 2379
_REDIS_PORT = 6379
_TLS_OPTIONS = frozenset({"ca", "cert", "key"})
_OPTIONS = {
    "etcd": frozenset({"password_file", "compact"}),
    "etcds": frozenset({"password_file", "compact"}) | _TLS_OPTIONS,
    "redis": frozenset({"password_file", "db"}),
    "rediss": frozenset({"password_file", "db"}) | _TLS_OPTIONS,
    "embedded": frozenset[str](),
}
_FORMS = (
    "etcd://HOST:2379[,HOST:2379]/NAME, etcds://... (TLS), redis://HOST:6379/NAME, rediss://... (TLS), "
    "embedded:///absolute/path/NAME, kubernetes://NAMESPACE/NAME"
)
_ENTRY_POINT_GROUP = "entrepot.directories"


@dataclass(frozen=True)
class _Address:
    """A URL, taken apart. ``text`` is what messages show: without the password."""

    text: str
    scheme: str
    name: str
    hosts: tuple[tuple[str, int], ...]
    folder: Path
    user: str
    password: str
    options: Mapping[str, str]


def open_directory(url: str, *, timeout: float = TIMEOUT_SECONDS, lost_seconds: float = LOST_SECONDS) -> Directory:
    """Open the directory of a cluster; an empty one becomes that of the cluster that the URL names.

    Args:
        url: ``etcd://[USER[:PASSWORD]@]HOST[:2379][,HOST...]/NAME``, ``etcds://`` for TLS; likewise
            ``redis://HOST[:6379]/NAME`` and ``rediss://``; or ``embedded:///absolute/path/NAME``, a file that the
            processes of one machine share; or ``kubernetes://[NAMESPACE]/NAME``. Options follow a question mark:
            ``password_file=PATH``; with TLS ``ca=PATH`` (default: the machine's), ``cert=PATH`` and ``key=PATH`` (of
            the client); with Redis ``db=NUMBER``; with etcd ``compact=no``, if its history must be kept; with
            Kubernetes ``kubeconfig=PATH`` and ``context=NAME``.
        timeout: seconds for one round trip.
        lost_seconds: how long a lost instance and its places are remembered, for ``Directory.sweep``.

    Raises:
        InvalidArgument: the URL or an option is invalid, or a file that it names cannot be read.
        DirectoryUnavailable: the directory cannot be reached, or does not respond.
        AccessDenied: user, password or certificate are refused.
        ClusterMismatch: it is another cluster's directory.
        VersionMismatch: it has a newer format.
        DirectoryDamaged: it does not say whose it is.
        ModuleNotFoundError: the client of this kind of server is not installed (``entrepot[etcd]``,
            ``entrepot[redis]``); for Kubernetes, this is an InvalidArgument.
    """
    if not timeout > 0:
        raise InvalidArgument(f"a timeout must be positive, but got {timeout!r}")
    name, backend = _open_backend(url, timeout)
    try:
        return Directory(backend, name, timeout, lost_seconds)
    except BaseException:
        backend.close()
        raise


def _open_backend(url: str, timeout: float) -> tuple[str, Backend]:
    """The cluster's name, and its directory."""
    parts = _split(url)
    if parts.scheme in _OPTIONS:
        address = _parse(url)
        return address.name, _connect(address, timeout)
    for point in entry_points(group=_ENTRY_POINT_GROUP, name=parts.scheme):
        folder, name = _path(parts)
        if folder != Path("/") or parts.fragment:
            raise InvalidArgument(f"{_shown(parts)!r} must have nothing but the cluster's name and options at its end")
        backend: Backend = point.load()(parts, name, dict(parse_qsl(parts.query, keep_blank_values=True)), timeout)
        return name, backend
    raise InvalidArgument(f"a cluster's URL has the form {_FORMS}, but {_shown(parts)!r} begins with {parts.scheme!r}")


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError as error:
        raise InvalidArgument(f"the cluster's URL is invalid ({error}); it has the form {_FORMS}") from None


def _path(parts: SplitResult) -> tuple[Path, str]:
    """The path before the cluster's name, and the name."""
    path = Path(unquote(parts.path))
    if not _NAME.match(path.name):
        raise InvalidArgument(
            f"{_shown(parts)!r} must end with the cluster's name: 1 to 63 letters, digits, '.', '_' and '-', but it "
            f"ends with {path.name!r}"
        )
    return path.parent, path.name


def _parse(url: str) -> _Address:
    parts = _split(url)
    scheme = parts.scheme
    shown = _shown(parts)
    credentials, _, hosts = parts.netloc.rpartition("@")
    path = Path(unquote(parts.path))
    folder, name = _path(parts)
    if scheme == "embedded" and (hosts or credentials or not path.is_absolute()):
        raise InvalidArgument(f"{shown!r} must name a file on this machine: embedded:///absolute/path/NAME")
    if scheme != "embedded" and folder != Path("/"):
        raise InvalidArgument(f"{shown!r} must have nothing but the cluster's name after the hosts")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = options.keys() - _OPTIONS[scheme]
    if unknown or parts.fragment:
        allowed = ", ".join(sorted(_OPTIONS[scheme])) or "none"
        raise InvalidArgument(f"{shown!r} has unknown options; allowed with {scheme}: {allowed}")
    user, _, password = (unquote(part) for part in credentials.partition(":"))
    if "password_file" in options:
        password = _contents(options["password_file"], "password_file").strip()
    port = _REDIS_PORT if scheme.startswith("redis") else _ETCD_PORT
    addresses = () if scheme == "embedded" else tuple(_host(host, port, shown) for host in hosts.split(","))
    if scheme.startswith("redis") and len(addresses) != 1:
        raise InvalidArgument(f"{shown!r} must name one host: Redis has one primary")
    return _Address(shown, scheme, name, addresses, folder, user, password, options)


def _host(text: str, default_port: int, shown: str) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
        text = f"{text} (its port must be 1 to 65535)"
    if not host:
        raise InvalidArgument(f"{shown!r} has the invalid host {text!r}; it has the form {_FORMS}")
    return host, port or default_port


def _connect(address: _Address, timeout: float) -> Backend:
    if address.scheme == "embedded":
        from entrepot_cluster.directory.backends.embedded import EmbeddedBackend

        if not address.folder.is_dir():
            raise InvalidArgument(f"{address.text!r}: the folder {address.folder} does not exist: create it first")
        return EmbeddedBackend(address.folder / address.name, timeout)
    tls = address.options if address.scheme in ("etcds", "rediss") else None
    if address.scheme.startswith("redis"):
        return _redis(address, timeout, tls)
    from entrepot_cluster.directory.backends.etcd import EtcdBackend
    from entrepot_cluster.directory.backends.etcd_gateway import EtcdAccess

    compact = address.options.get("compact", "yes")
    if compact not in ("yes", "no"):
        raise InvalidArgument(f"{address.text!r}: compact must be yes or no, but got {compact!r}")
    context = None if tls is None else _tls_context(tls)
    access = EtcdAccess(address.hosts, context, address.user, address.password)
    return EtcdBackend(access, address.name, timeout, compact=compact == "yes")


def _redis(address: _Address, timeout: float, tls: Mapping[str, str] | None) -> Backend:
    from entrepot_cluster.directory.backends.redis_server import RedisBackend

    number = address.options.get("db", "0")
    if not number.isdecimal():
        raise InvalidArgument(f"{address.text!r}: db must be a number, but got {number!r}")
    ((host, port),) = address.hosts
    options: dict[str, object] = {"host": host, "port": port, "db": int(number)}
    if address.user:
        options["username"] = address.user
    if address.password:
        options["password"] = address.password
    if tls is not None:
        _tls_context(tls)  # says what is wrong with the files
        options |= {
            "ssl": True,
            "ssl_ca_certs": tls.get("ca"),
            "ssl_certfile": tls.get("cert"),
            "ssl_keyfile": tls.get("key"),
        }
    return RedisBackend(address.name, timeout, **options)


def _tls_context(options: Mapping[str, str]) -> ssl.SSLContext:
    for option in _TLS_OPTIONS & options.keys():
        _contents(options[option], option)
    try:
        context = ssl.create_default_context(cafile=options.get("ca"))
        if "cert" in options:
            context.load_cert_chain(options["cert"], options.get("key"))
    except (ssl.SSLError, OSError) as error:
        raise InvalidArgument(f"the files for TLS cannot be used: {error}") from None
    if "key" in options and "cert" not in options:
        raise InvalidArgument("the option key needs cert as well, the certificate that it belongs to")
    return context


def _contents(path: str, option: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"the file of the option {option}, {path!r}, cannot be read: {error}") from None


def _shown(parts: SplitResult) -> str:
    """The URL without its password."""
    credentials, at, hosts = parts.netloc.rpartition("@")
    return parts._replace(netloc=credentials.partition(":")[0] + at + hosts).geturl()
