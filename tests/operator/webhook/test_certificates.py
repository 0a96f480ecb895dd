"""Certificates over years: API servers and replicas that are late still trust, and serve, certificates that match."""

from __future__ import annotations

import random
from datetime import datetime, timedelta, timezone

import pytest
from cryptography import x509
from cryptography.x509 import verification
from entrepot.errors import InvalidArgument
from entrepot_operator.webhook.certificates import CertificateBundle, Lifetimes, rotate

NAMES = ("entrepot-webhook.entrepot-system.svc", "127.0.0.1")
START = datetime(2030, 1, 1, tzinfo=timezone.utc)
LIFETIMES = Lifetimes()


def trusts(bundle: bytes, served: bytes, now: datetime) -> None:
    """Verify the certificate as a client with this bundle would; raises if it is not trusted."""
    store = verification.Store(x509.load_pem_x509_certificates(bundle))
    certificate = x509.load_pem_x509_certificate(served)
    for name in NAMES:
        subject: x509.DNSName | x509.IPAddress = x509.DNSName(name)
        if name[0].isdigit():
            import ipaddress

            subject = x509.IPAddress(ipaddress.ip_address(name))
        verifier = verification.PolicyBuilder().store(store).time(now).build_server_verifier(subject)
        verifier.verify(certificate, [])


def test_whoever_is_up_to_an_hour_late_still_trusts_what_is_served() -> None:
    rng = random.Random(11)
    now, certificates = START, rotate(None, START, NAMES, LIFETIMES)
    seen = [(now, certificates)]
    servers, authorities = {certificates.server.certificate}, {certificates.authorities[-1]}
    while now < START + timedelta(days=3 * 365):
        # Replicas check every 30 seconds; here the steps are longer, sometimes days, as after a cluster was shut down.
        now += timedelta(minutes=rng.choice([1, 20, 50, 60 * 24, 60 * 24 * 3]))
        certificates = rotate(certificates, now, NAMES, LIFETIMES)
        seen = [(at, bundle) for at, bundle in seen if at > now - LIFETIMES.propagation] + [(now, certificates)]
        for _, late_client in seen:
            for _, late_replica in seen:
                trusts(late_client.ca_bundle, late_replica.server.certificate, now)
        assert certificates.ca_bundle.count(b"BEGIN") <= 2
        servers.add(certificates.server.certificate)
        authorities.add(certificates.authorities[-1])
    assert len(servers) > 3 * 365 / 30
    assert len(authorities) == 5  # one per eight months


def test_nothing_is_done_where_nothing_is_due() -> None:
    certificates = rotate(None, START, NAMES, LIFETIMES)
    assert rotate(certificates, START + timedelta(days=19), NAMES, LIFETIMES) is certificates
    again = rotate(certificates, START + timedelta(days=21), NAMES, LIFETIMES)
    assert again.server != certificates.server
    assert again.authorities == certificates.authorities


def test_other_names_are_another_certificate() -> None:
    certificates = rotate(None, START, NAMES, LIFETIMES)
    other = rotate(certificates, START + timedelta(days=2), ("other.svc",), LIFETIMES)
    assert other.server != certificates.server
    assert rotate(other, START + timedelta(days=2), ("other.svc",), LIFETIMES) is other


def test_after_a_long_sleep_everything_is_made_anew() -> None:
    certificates = rotate(None, START, NAMES, LIFETIMES)
    late = START + timedelta(days=2000)
    renewed = rotate(certificates, late, NAMES, LIFETIMES)
    trusts(renewed.ca_bundle, renewed.server.certificate, late)
    assert not set(renewed.authorities) & set(certificates.authorities)


def test_what_is_held_can_be_kept_and_read_again() -> None:
    certificates = rotate(None, START, NAMES, LIFETIMES)
    assert CertificateBundle.from_data(certificates.to_data()) == certificates
    assert "PRIVATE" not in repr(certificates) + repr(certificates.server)


@pytest.mark.parametrize("missing", ["ca.crt", "ca.key", "tls.crt", "tls.key"])
def test_damaged_certificates_are_reported(missing: str) -> None:
    data = rotate(None, START, NAMES, LIFETIMES).to_data()
    other = rotate(None, START, NAMES, LIFETIMES).to_data()
    with pytest.raises(InvalidArgument, match="invalid certificates"):
        CertificateBundle.from_data({key: value for key, value in data.items() if key != missing})
    with pytest.raises(InvalidArgument, match="invalid certificates"):
        CertificateBundle.from_data({**data, missing: b"-----BEGIN NONSENSE-----"})
    with pytest.raises(InvalidArgument, match="invalid certificates"):
        CertificateBundle.from_data({**data, missing: other[missing]})
