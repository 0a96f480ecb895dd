"""Certificates of the webhook: its own CA, the server's certificate, and when each is renewed.

What to do follows from the certificates alone, so every replica reaches the same decision:

- no CA: create one, and a certificate signed by it;
- certificate past 2/3 of its lifetime, or for other names: new certificate, signed by the newest CA;
- CA past 2/3 of its lifetime: add a new CA; both are trusted, the certificate stays;
- new CA one hour old (known to every API server): certificate signed by it;
- that certificate one hour old (served by every replica): remove the old CA.
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

_CLOCK_SKEW = timedelta(minutes=5)
_RENEWAL_FRACTION = 2 / 3


@dataclass(frozen=True)
class Lifetimes:
    """Lifetimes.

    Attributes:
        authority, server: lifetime of the certificates.
        propagation: time until a change has reached everybody.
    """

    authority: timedelta = timedelta(days=365)
    server: timedelta = timedelta(days=30)
    propagation: timedelta = timedelta(hours=1)


@dataclass(frozen=True)
class KeyPair:
    """A certificate and its key, both PEM."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return "KeyPair(...)"  # keeps keys out of logs

    @property
    def expires(self) -> datetime:
        """Expiry time of the certificate."""
        return x509.load_pem_x509_certificate(self.certificate).not_valid_after_utc


@dataclass(frozen=True)
class CertificateBundle:
    """The state shared by the replicas.

    Attributes:
        authorities: certificates of the trusted CAs, PEM, newest last.
        key: of the newest CA.
        server: the certificate being served.
    """

    authorities: tuple[bytes, ...]
    key: bytes
    server: KeyPair

    def __repr__(self) -> str:
        return f"CertificateBundle({len(self.authorities)} authorities)"

    @property
    def ca_bundle(self) -> bytes:
        """The CA bundle that clients must trust."""
        return b"".join(self.authorities)

    def to_data(self) -> dict[str, bytes]:
        """Encode as the Secret's data."""
        return {
            "ca.crt": self.ca_bundle,
            "ca.key": self.key,
            "tls.crt": self.server.certificate,
            "tls.key": self.server.key,
        }

    @classmethod
    def from_data(cls, data: dict[str, bytes]) -> CertificateBundle:
        """Decode the Secret's data.

        Raises:
            InvalidArgument: a part is missing, damaged, or does not match the others.
        """
        try:
            authorities = x509.load_pem_x509_certificates(data["ca.crt"])
            server = x509.load_pem_x509_certificate(data["tls.crt"])
            for certificate, key in ((authorities[-1], data["ca.key"]), (server, data["tls.key"])):
                if _decode_key(key).public_key() != certificate.public_key():
                    raise ValueError(f"the private key of {certificate.subject.rfc4514_string()} does not match it")
            if server.issuer not in [authority.subject for authority in authorities]:
                raise ValueError("the server's certificate was not issued by a trusted CA")
        except (KeyError, ValueError, TypeError) as error:
            raise InvalidArgument(f"invalid certificates: {type(error).__name__}: {error}") from error
        pems = tuple(authority.public_bytes(serialization.Encoding.PEM) for authority in authorities)
        return cls(pems, data["ca.key"], KeyPair(data["tls.crt"], data["tls.key"]))


def rotate(
    bundle: CertificateBundle | None, now: datetime, names: tuple[str, ...], lifetimes: Lifetimes | None = None
) -> CertificateBundle:
    """The next state of the certificates; the same object if there is nothing to do.

    Args:
        bundle: the current state; None: nothing usable.
        now: in UTC.
        names: DNS names and IP addresses of the server.
        lifetimes: lifetimes.
    """
    lifetimes = lifetimes or Lifetimes()
    if bundle is None:
        return _create_bundle(now, names, lifetimes)
    trusted = [x509.load_pem_x509_certificate(item) for item in bundle.authorities]
    trusted = (
        [item for item in trusted if item.not_valid_after_utc > now] if trusted[-1].not_valid_after_utc > now else []
    )
    if not trusted:
        return _create_bundle(now, names, lifetimes)
    key, server = bundle.key, bundle.server
    if _is_renewal_due(trusted[-1], now):
        new_authority, key = _create_authority(now, lifetimes)
        trusted.append(new_authority)
    newest = trusted[-1]
    certificate = x509.load_pem_x509_certificate(server.certificate)
    is_propagated = len(trusted) == 1 or _issued_at(newest) + lifetimes.propagation <= now
    is_of_newest = certificate.issuer == newest.subject
    is_unusable = certificate.not_valid_after_utc <= now or certificate.issuer not in [item.subject for item in trusted]
    is_renewal_needed = (
        not is_of_newest
        or _is_renewal_due(certificate, now)
        or _certificate_names(certificate) != {str(_general_name(item).value) for item in names}
    )
    if is_unusable or (is_propagated and is_renewal_needed):
        server = _create_server_key_pair(newest, key, now, names, lifetimes)
    elif is_of_newest and _issued_at(certificate) + lifetimes.propagation <= now:
        trusted = [newest]
    authorities = tuple(item.public_bytes(serialization.Encoding.PEM) for item in trusted)
    rotated = replace(bundle, authorities=authorities, key=key, server=server)
    return bundle if rotated == bundle else rotated


def _create_bundle(now: datetime, names: tuple[str, ...], lifetimes: Lifetimes) -> CertificateBundle:
    certificate, key = _create_authority(now, lifetimes)
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    return CertificateBundle((pem,), key, _create_server_key_pair(certificate, key, now, names, lifetimes))


def _create_authority(now: datetime, lifetimes: Lifetimes) -> tuple[x509.Certificate, bytes]:
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
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + lifetimes.authority)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return certificate, _encode_key(key)


def _create_server_key_pair(
    authority: x509.Certificate, ca_key: bytes, now: datetime, names: tuple[str, ...], lifetimes: Lifetimes
) -> KeyPair:
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = _decode_key(ca_key)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64])]))
        .issuer_name(authority.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(min(now + lifetimes.server, authority.not_valid_after_utc))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.public_key()), critical=False)
        .sign(issuer, hashes.SHA256())
    )
    return KeyPair(certificate.public_bytes(serialization.Encoding.PEM), _encode_key(key))


def _is_renewal_due(certificate: x509.Certificate, now: datetime) -> bool:
    life = certificate.not_valid_after_utc - _issued_at(certificate)
    return now >= _issued_at(certificate) + life * _RENEWAL_FRACTION


def _issued_at(certificate: x509.Certificate) -> datetime:
    return certificate.not_valid_before_utc + _CLOCK_SKEW


def _certificate_names(certificate: x509.Certificate) -> set[str]:
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    return {str(name.value) for name in extension}


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _encode_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _decode_key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(pem, None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError(f"the private key is not an EC key: {type(key).__name__}")
    return key
