"""The beginning of each connection: versions, cluster, instances and token, before any request is read.

```
client                                server
preamble (magic, version)      ->
                               <-     preamble, and if the versions fit:
HELLO {cluster, instance,      ->
       expects, nonce, codecs,
       transports}
                               <-     HELLO {cluster, instance, nonce, transports, token}, or ERROR
HELLO {proof, ucx}             ->
                               <-     HELLO {proof, ucx}, or ERROR
```

``token`` says whether one is needed. The client proves first that it knows the token, so that nobody learns anything
about the token by connecting. If both ends offer UCX, they tell each other where their ends of it are together with
their proofs, and what follows the handshake travels there.
"""

from __future__ import annotations

import os
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NoReturn

from entrepot.errors import AccessDenied, CorruptData, EntrepotError, InstanceLost, InvalidArgument, StoreUnavailable

from entrepot_cluster.transport import compression
from entrepot_cluster.transport.frames import (
    MAX_HANDSHAKE_BYTES,
    PREAMBLE_BYTES,
    Kind,
    check_preamble,
    field,
    pack_error,
    pack_map,
    pack_preamble,
    parse_error,
    parse_map,
)
from entrepot_cluster.transport.links import Link
from entrepot_cluster.transport.security import TransportSecurity, proof, same
from entrepot_cluster.transport.socket_wires import PlainWire
from entrepot_cluster.transport.ucx_wire import TCP, UCX, UcxOffer

NONCE_BYTES = 32
MAX_NAME_BYTES = 255
_CLIENT, _SERVER = b"entrepot gateway client", b"entrepot gateway server"


@dataclass(frozen=True, slots=True)
class Identity:
    """What a gateway says about itself.

    Attributes:
        cluster: name of its cluster, at most 255 bytes.
        instance: ID of its store's instance.
    """

    cluster: str
    instance: str


@dataclass(frozen=True, slots=True)
class Introduced:
    """The peer at the other end of a connection.

    Attributes:
        identity: what it said about itself; its cluster is ours.
        version: of the protocol that it speaks.
        codecs: with which it can unpack payloads, by their numbers.
    """

    identity: Identity
    version: tuple[int, int]
    codecs: tuple[int, ...] = ()


def introduce(
    link: Link, own: Identity, security: TransportSecurity, expected: str = "", transport: str = TCP
) -> Introduced:
    """The handshake of the end that connected.

    Args:
        link: a new connection.
        own: this gateway.
        security: where the token is from.
        expected: the instance that must be at the other end; default: any.
        transport: ``"ucx"``: go on over UCX, if the peer offers it too.

    Raises:
        VersionMismatch: the peer's protocol has another major version.
        AccessDenied: one of them refuses the other: another cluster or token; the message says which.
        InstanceLost: another instance is at the address.
        CorruptData: the peer is no gateway.
        Timeout, StoreUnavailable: the peer does not answer, has closed the connection, or cannot be reached by UCX.
    """
    link.send([pack_preamble()])
    preamble = bytearray(PREAMBLE_BYTES)
    link.receive(preamble)
    version = check_preamble(preamble)
    nonce = os.urandom(NONCE_BYTES)
    hello: dict[str, Any] = {"cluster": own.cluster, "instance": own.instance, "expects": expected, "nonce": nonce}
    hello["codecs"] = compression.supported()
    hello["transports"] = _transports(transport)
    link.send_frame(Kind.HELLO, 0, pack_map(hello))
    answer = _receive(link)
    peer = _identity(answer)
    if peer.cluster != own.cluster:
        raise AccessDenied(
            f"this gateway refused {link.peer}: it belongs to the cluster {peer.cluster!r}, and this one to "
            f"{own.cluster!r}"
        )
    if expected and peer.instance != expected:
        raise InstanceLost(f"the store at {link.peer} is the instance {peer.instance}, and {expected} was expected")
    token = security.token()
    needed = field(answer, "token", bool)
    if needed and token is None:
        raise AccessDenied(f"{link.peer} requires a token, and this gateway has none: configure the cluster's token")
    parts = _parts(own, peer, nonce, field(answer, "nonce", bytes))
    last: dict[str, Any] = {"proof": proof(token, _CLIENT, parts) if token else b""}
    with _ucx_offer(link, transport, answer) as offer:
        if offer is not None:
            last["ucx"] = offer.message()
        link.send_frame(Kind.HELLO, 0, pack_map(last))
        final = _receive(link)
        if token and not same(field(final, "proof", bytes), proof(token, _SERVER, parts)):
            raise AccessDenied(
                f"this gateway refused {link.peer}: it did not prove that it knows the cluster's token; give both the "
                "same"
            )
        if offer is not None:
            link.wire = offer.accept(final.get("ucx"))
    return Introduced(peer, version)


def welcome(link: Link, own: Identity, security: TransportSecurity, transport: str = TCP) -> Introduced:
    """The handshake of the end that listens; a refused peer is told why.

    Args:
        link: a new connection.
        own: this gateway.
        security: where the token is from.
        transport: ``"ucx"``: go on over UCX, if the peer offers it too.

    Raises:
        EntrepotError: as for :func:`introduce`.
    """
    preamble = bytearray(PREAMBLE_BYTES)
    link.receive(preamble)
    if preamble[:4] == pack_preamble()[:4]:
        link.send([pack_preamble()])  # so that both know both versions
    version = check_preamble(preamble)
    hello = _receive(link)
    peer, nonce = _identity(hello), field(hello, "nonce", bytes)
    if len(nonce) != NONCE_BYTES:
        raise CorruptData(f"{link.peer} sent a nonce of {len(nonce)} bytes instead of {NONCE_BYTES}")
    expected = field(hello, "expects", str)
    if peer.cluster != own.cluster:
        refuse(
            link, AccessDenied(_refusal(own, f"the peer's cluster is {peer.cluster!r}, and its own {own.cluster!r}"))
        )
    if expected and expected != own.instance:
        refuse(link, InstanceLost(f"the store there is the instance {own.instance}, and {expected} was expected"))
    try:
        token = security.token()
    except AccessDenied as error:
        refuse(link, AccessDenied(_refusal(own, "its own token cannot be read")), error)
    own_nonce = os.urandom(NONCE_BYTES)
    answer = {"cluster": own.cluster, "instance": own.instance, "nonce": own_nonce, "token": token is not None}
    link.send_frame(Kind.HELLO, 0, pack_map({**answer, "transports": _transports(transport)}))
    proving = _receive(link)
    theirs = field(proving, "proof", bytes)
    parts = _parts(peer, own, nonce, own_nonce)
    if token is not None and not same(theirs, proof(token, _CLIENT, parts)):
        refuse(link, AccessDenied(_refusal(own, "the peer's token is not the cluster's, or is an old one")))
    codecs = hello.get("codecs", [])  # protocol 1.0 has none
    if not isinstance(codecs, list) or not all(type(codec) is int for codec in codecs):
        raise CorruptData(f"{link.peer} sent {str(codecs)[:100]!r} in place of the numbers of codecs")
    last: dict[str, Any] = {"proof": proof(token, _SERVER, parts) if token else b""}
    try:
        with _ucx_offer(link, transport, hello) as offer:
            wire = link.wire
            if offer is not None:
                last["ucx"] = offer.message()
                wire = offer.accept(proving.get("ucx"))
            link.send_frame(Kind.HELLO, 0, pack_map(last))
            link.wire = wire
    except StoreUnavailable as error:
        refuse(link, error)
    return Introduced(peer, version, tuple(codecs))


def _transports(transport: str) -> list[str]:
    return [UCX] if transport == UCX else []


def _ucx_offer(link: Link, transport: str, hello: dict[str, Any]) -> UcxOffer | nullcontext[None]:
    """This end of a UCX connection, if both want one; TCP carries the rest otherwise."""
    theirs = hello.get("transports", [])  # protocol 1.1 has none
    if transport != UCX or not isinstance(theirs, list) or UCX not in theirs:
        return nullcontext()
    if not isinstance(link.wire, PlainWire):
        raise InvalidArgument("UCX does not encrypt, and this connection is one with TLS")
    return UcxOffer(link.wire, link.progress_seconds)


def refuse(link: Link, error: EntrepotError, cause: BaseException | None = None) -> NoReturn:
    """Tell the peer why it is refused, and raise that error."""
    link.send_frame(Kind.ERROR, 0, pack_error(error), last=True)
    raise error from cause


def _refusal(own: Identity, why: str) -> str:
    return f"the gateway of the store {own.instance} refused its peer: {why}"


def _receive(link: Link) -> dict[str, Any]:
    frame, meta = link.receive_head(MAX_HANDSHAKE_BYTES)
    if frame.kind == Kind.ERROR:
        raise parse_error(meta, f"{link.peer}: ")
    if frame.kind != Kind.HELLO or frame.payload_bytes:
        raise CorruptData(f"{link.peer} sent a {frame.kind.name} frame in place of a HELLO")
    return parse_map(meta)


def _identity(values: dict[str, Any]) -> Identity:
    cluster, instance = field(values, "cluster", str), field(values, "instance", str)
    if max(len(cluster.encode()), len(instance.encode())) > MAX_NAME_BYTES:
        raise CorruptData(f"the peer's names are longer than {MAX_NAME_BYTES} bytes")
    return Identity(cluster, instance)


def _parts(client: Identity, server: Identity, client_nonce: bytes, server_nonce: bytes) -> tuple[bytes, ...]:
    names = (client.cluster, client.instance, server.instance)
    return (client_nonce, server_nonce, *(name.encode() for name in names))
