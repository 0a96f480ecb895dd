"""Certificates over years: API servers and replicas that are late still trust, and serve, certificates that match."""

from __future__ import annotations

import random
from datetime import datetime, timedelta, timezone

import pytest
from cryptography import x509
from cryptography.x509 import verification
from entrepot.errors import InvalidArgument
from entrepot_operator.admission.authority import Held, Terms, advance

NAMES = ("entrepot-webhook.entrepot-system.svc", "127.0.0.1")
START = datetime(2030, 1, 1, tzinfo=timezone.utc)
TERMS = Terms()


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
    chance = random.Random(11)
    now, held = START, advance(None, START, NAMES, TERMS)
    seen = [(now, held)]
    servers, authorities = {held.server.certificate}, {held.authorities[-1]}
    while now < START + timedelta(days=3 * 365):
        # Replicas check every 30 seconds; here the steps are longer, sometimes days, as after a cluster was shut down.
        now += timedelta(minutes=chance.choice([1, 20, 50, 60 * 24, 60 * 24 * 3]))
        held = advance(held, now, NAMES, TERMS)
        seen = [(at, one) for at, one in seen if at > now - TERMS.spread] + [(now, held)]
        for _, late_client in seen:
            for _, late_replica in seen:
                trusts(late_client.bundle, late_replica.server.certificate, now)
        assert held.bundle.count(b"BEGIN") <= 2
        servers.add(held.server.certificate)
        authorities.add(held.authorities[-1])
    assert len(servers) > 3 * 365 / 30
    assert len(authorities) == 5  # one per eight months


def test_nothing_is_done_where_nothing_is_due() -> None:
    held = advance(None, START, NAMES, TERMS)
    assert advance(held, START + timedelta(days=19), NAMES, TERMS) is held
    again = advance(held, START + timedelta(days=21), NAMES, TERMS)
    assert again.server != held.server
    assert again.authorities == held.authorities


def test_other_names_are_another_certificate() -> None:
    held = advance(None, START, NAMES, TERMS)
    other = advance(held, START + timedelta(days=2), ("other.svc",), TERMS)
    assert other.server != held.server
    assert advance(other, START + timedelta(days=2), ("other.svc",), TERMS) is other


def test_after_a_long_sleep_everything_is_made_anew() -> None:
    held = advance(None, START, NAMES, TERMS)
    late = START + timedelta(days=2000)
    made = advance(held, late, NAMES, TERMS)
    trusts(made.bundle, made.server.certificate, late)
    assert not set(made.authorities) & set(held.authorities)


def test_what_is_held_can_be_kept_and_read_again() -> None:
    held = advance(None, START, NAMES, TERMS)
    assert Held.of_data(held.to_data()) == held
    assert "PRIVATE" not in repr(held) + repr(held.server)


@pytest.mark.parametrize("missing", ["ca.crt", "ca.key", "tls.crt", "tls.key"])
def test_what_is_damaged_is_said(missing: str) -> None:
    data = advance(None, START, NAMES, TERMS).to_data()
    other = advance(None, START, NAMES, TERMS).to_data()
    with pytest.raises(InvalidArgument, match="cannot be used"):
        Held.of_data({key: value for key, value in data.items() if key != missing})
    with pytest.raises(InvalidArgument, match="cannot be used"):
        Held.of_data({**data, missing: b"-----BEGIN NONSENSE-----"})
    with pytest.raises(InvalidArgument, match="cannot be used"):
        Held.of_data({**data, missing: other[missing]})
