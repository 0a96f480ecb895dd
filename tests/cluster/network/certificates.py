"""Certificates for tests: a CA, and gateways with certificates of it."""

from __future__ import annotations

import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from entrepot_cluster.transport.security import TlsFiles

_DAY = datetime.timedelta(days=1)


class Authority:
    """A CA whose files are in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, folder.name)])
        self._path = folder / "ca.pem"
        self._write(self._path, self._sign(self._name, self._key.public_key(), 1, is_ca=True))

    def gateway(self, name: str, *, days: int = 1, ca: Path | None = None) -> TlsFiles:
        """A new certificate; ``days``: how long it is valid, negative: expired since; ``ca``: whom it trusts."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = self._folder / f"{name}.pem"
        self._write(certificate, self._sign(subject, key.public_key(), days, is_ca=False))
        key_path = self._folder / f"{name}.key"
        key_path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        key_path.chmod(0o600)
        return TlsFiles(certificate, key_path, ca or self._path)

    def _sign(self, subject: x509.Name, key: ec.EllipticCurvePublicKey, days: int, *, is_ca: bool) -> x509.Certificate:
        now = datetime.datetime.now(datetime.timezone.utc)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 10 * _DAY)
            .not_valid_after(now + days * _DAY)
            .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )

    @staticmethod
    def _write(path: Path, certificate: x509.Certificate) -> None:
        path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
