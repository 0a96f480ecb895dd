"""Certificates that others exchange while they are read or written."""

from __future__ import annotations

import base64
from itertools import chain, count, repeat
from pathlib import Path
from typing import Any

import pytest
from entrepot.errors import InvalidArgument
from entrepot_operator.webhook.certificate_store import MountedCertificates, SharedCertificates
from entrepot_operator.webhook.certificates import KeyPair, rotate
from entrepot_operator.webhook.settings import Settings


def test_of_two_replicas_that_make_certificates_the_first_wins(server: Any) -> None:
    settings = Settings("system")
    secret = f"/api/v1/namespaces/system/secrets/{settings.secret}"
    configurations = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
    server.put(secret, {"metadata": {"name": settings.secret}})
    server.put(f"{configurations}/{settings.configuration}", {"metadata": {"name": settings.configuration}})
    theirs = rotate(None, server.now, settings.server_names)
    versions: list[str] = []

    def be_faster(method: str, path: str, body: dict[str, Any]) -> tuple[int, str] | None:
        if (method, path) != ("PATCH", secret):
            return None
        versions.append(body["metadata"]["resourceVersion"])
        data = {key: base64.b64encode(value).decode() for key, value in theirs.to_data().items()}
        server.put(secret, {"metadata": {"name": settings.secret}, "data": data})
        return 409, "the object has been modified"

    read = server.resources[secret]["metadata"]["resourceVersion"]
    server.refuse = be_faster
    assert SharedCertificates(server.api(0), settings).refresh() == theirs.server
    assert versions == [read], "one attempt, on the version that was read"


def test_a_mounted_pair_is_read_until_its_files_belong_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificates = chain([b"old"], repeat(b"new"))  # exchanged after the first file was read
    monkeypatch.setattr(Path, "read_bytes", lambda path: next(certificates) if path.suffix == ".crt" else b"new key")
    pauses: list[float] = []
    assert MountedCertificates(tmp_path, pauses.append).refresh() == KeyPair(b"new", b"new key")
    assert len(pauses) == 1
    numbers = count()
    monkeypatch.setattr(Path, "read_bytes", lambda _: b"%d" % next(numbers))
    with pytest.raises(InvalidArgument, match="keeps changing"):
        MountedCertificates(tmp_path, pauses.append).refresh()
