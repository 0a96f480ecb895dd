"""Certificates of the webhook: its own CA, the server's certificate, and when each is renewed.

What to do follows from the certificates alone, so every replica reaches the same decision:

no CA --> create one, and a certificate signed by it certificate past 2/3 of its lifetime, or for other names --> new
certificate, signed by the newest CA CA past 2/3 of its lifetime --> add a new CA: both are trusted, the certificate
stays new CA one hour old (known to every API server) --> certificate signed by it that certificate one hour old (served
by every replica) --> remove the old CA
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from entrepot.errors import InvalidArgument

_BACKDATED = timedelta(minutes=5)  # for clock skew
_RENEWED_AT = 2 / 3


@dataclass(frozen=True)
class Terms:
    """Lifetimes.

    Attributes:
        authority, server: lifetime of the certificates.
        spread: time until a change has reached everybody.
    """

    authority: timedelta = timedelta(days=365)
    server: timedelta = timedelta(days=30)
    spread: timedelta = timedelta(hours=1)


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, both PEM."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return "Pair(...)"  # keeps keys out of logs

    @property
    def expires(self) -> datetime:
        """When the certificate expires."""
        return x509.load_pem_x509_certificate(self.certificate).not_valid_after_utc


@dataclass(frozen=True)
class Held:
    """The state shared by the replicas.

    Attributes:
        authorities: certificates of the trusted CAs, PEM, newest last.
        key: of the newest CA.
        server: the certificate being served.
    """

    authorities: tuple[bytes, ...]
    key: bytes
    server: Pair

    def __repr__(self) -> str:
        return f"Held({len(self.authorities)} authorities)"

    @property
    def bundle(self) -> bytes:
        """The CA bundle that clients must trust."""
        return b"".join(self.authorities)

    def to_data(self) -> dict[str, bytes]:
        """Encode as the Secret's data."""
        return {
            "ca.crt": self.bundle,
            "ca.key": self.key,
            "tls.crt": self.server.certificate,
            "tls.key": self.server.key,
        }

    @classmethod
    def of_data(cls, data: dict[str, bytes]) -> Held:
        """Decode the Secret's data.

        Raises:
            InvalidArgument: a part is missing, damaged, or does not match the others.
        """
        try:
            authorities = x509.load_pem_x509_certificates(data["ca.crt"])
            server = x509.load_pem_x509_certificate(data["tls.crt"])
            for certificate, key in ((authorities[-1], data["ca.key"]), (server, data["tls.key"])):
                if _key(key).public_key() != certificate.public_key():
                    raise ValueError(f"the key of {certificate.subject.rfc4514_string()} is another one")
            if server.issuer not in [one.subject for one in authorities]:
                raise ValueError("the server's certificate is by none of the authorities")
        except (KeyError, ValueError, TypeError) as error:
            raise InvalidArgument(f"the certificates cannot be used: {type(error).__name__}: {error}") from error
        pems = tuple(one.public_bytes(serialization.Encoding.PEM) for one in authorities)
        return cls(pems, data["ca.key"], Pair(data["tls.crt"], data["tls.key"]))


def advance(held: Held | None, now: datetime, names: tuple[str, ...], terms: Terms | None = None) -> Held:
    """The next state of the certificates; the same object if there is nothing to do.

    Args:
        held: the current state; None: nothing usable.
        now: in UTC.
        names: DNS names and IP addresses of the server.
        terms: lifetimes.
    """
    terms = terms or Terms()
    if held is None:
        return _afresh(now, names, terms)
    trusted = [x509.load_pem_x509_certificate(one) for one in held.authorities]
    trusted = [one for one in trusted if one.not_valid_after_utc > now] if trusted[-1].not_valid_after_utc > now else []
    if not trusted:
        return _afresh(now, names, terms)
    key, server = held.key, held.server
    if _due(trusted[-1], now):
        made, key = _authority(now, terms)
        trusted.append(made)
    newest = trusted[-1]
    certificate = x509.load_pem_x509_certificate(server.certificate)
    spread = len(trusted) == 1 or _made(newest) + terms.spread <= now
    of_newest = certificate.issuer == newest.subject
    over = certificate.not_valid_after_utc <= now or certificate.issuer not in [one.subject for one in trusted]
    wanted = (
        not of_newest
        or _due(certificate, now)
        or _names(certificate) != {str(_general_name(one).value) for one in names}
    )
    if over or (spread and wanted):
        server = _server(newest, key, now, names, terms)
    elif of_newest and _made(certificate) + terms.spread <= now:
        trusted = [newest]
    authorities = tuple(one.public_bytes(serialization.Encoding.PEM) for one in trusted)
    found = replace(held, authorities=authorities, key=key, server=server)
    return held if found == held else found


def _afresh(now: datetime, names: tuple[str, ...], terms: Terms) -> Held:
    certificate, key = _authority(now, terms)
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    return Held((pem,), key, _server(certificate, key, now, names, terms))


def _authority(now: datetime, terms: Terms) -> tuple[x509.Certificate, bytes]:
    key = ec.generate_private_key(ec.SECP256R1())
    serial = x509.random_serial_number()
    # A unique name for each CA, so that the old one's key is not mistaken for the new one's.
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"entrepot webhook {serial:x}"[:64])])
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(serial)
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + terms.authority)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return certificate, _pem(key)


def _server(authority: x509.Certificate, ca_key: bytes, now: datetime, names: tuple[str, ...], terms: Terms) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = _key(ca_key)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64])]))
        .issuer_name(authority.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(min(now + terms.server, authority.not_valid_after_utc))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([_general_name(one) for one in names]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.public_key()), critical=False)
        .sign(issuer, hashes.SHA256())
    )
    return Pair(certificate.public_bytes(serialization.Encoding.PEM), _pem(key))


def _due(certificate: x509.Certificate, now: datetime) -> bool:
    life = certificate.not_valid_after_utc - _made(certificate)
    return now >= _made(certificate) + life * _RENEWED_AT


def _made(certificate: x509.Certificate) -> datetime:
    return certificate.not_valid_before_utc + _BACKDATED


def _names(certificate: x509.Certificate) -> set[str]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    return {str(one.value) for one in found}


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    found = serialization.load_pem_private_key(pem, None)
    if not isinstance(found, ec.EllipticCurvePrivateKey):
        raise ValueError(f"a key of another kind: {type(found).__name__}")
    return found
