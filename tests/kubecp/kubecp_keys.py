"""Certificate authority of a control plane: signs elliptic-curve certificates that are valid for a week."""

from __future__ import annotations

import ipaddress
from datetime import datetime, timedelta, timezone
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_VALIDITY = timedelta(days=7)
_CLOCK_SKEW = timedelta(minutes=5)  # clocks of containers differ


class Authority:
    """Sign certificates into a directory, as ``NAME.crt`` and ``NAME.key``.

    Args:
        folder: exists; inaccessible to other users.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("kubecp")
        now = datetime.now(timezone.utc)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(self._name)
            .issuer_name(self._name)
            .public_key(self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _CLOCK_SKEW)
            .not_valid_after(now + _VALIDITY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_usage(signs=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self._certificate = certificate
        self.file = folder / "ca.crt"
        self.file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def server(self, name: str, hosts: list[str]) -> None:
        """Sign a certificate for a server with these names and addresses."""
        self._sign(name, _name(name), ExtendedKeyUsageOID.SERVER_AUTH, hosts)

    def client(self, name: str, user: str, group: str | None = None) -> None:
        """Sign a certificate that identifies a client."""
        self._sign(name, _name(user, group), ExtendedKeyUsageOID.CLIENT_AUTH, [])

    def signing_pair(self, name: str) -> None:
        """Create a key that signs tokens, ``NAME.key``, and its public half, ``NAME.pub``."""
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self._write_key(name, key)
        public = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        (self._folder / f"{name}.pub").write_bytes(public)

    def _sign(self, name: str, subject: x509.Name, use: x509.ObjectIdentifier, hosts: list[str]) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.now(timezone.utc)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _CLOCK_SKEW)
            .not_valid_after(now + _VALIDITY)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([use]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False
            )
        certificate = builder.sign(self._key, hashes.SHA256())
        self._write_key(name, key)
        (self._folder / f"{name}.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def _write_key(self, name: str, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> None:
        text = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        (self._folder / f"{name}.key").write_bytes(text)


def _name(common: str, group: str | None = None) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, common)]
    if group is not None:
        parts.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, group))
    return x509.Name(parts)


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )
