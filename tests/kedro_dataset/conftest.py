from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from entrepot_io.connections import close_all


@pytest.fixture
def in_scope_tests(daemon: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Datasets of this process and its children use the daemon, in the scope ``tests``."""
    monkeypatch.setenv("ENTREPOT_ADDRESS", daemon.address)
    monkeypatch.setenv("ENTREPOT_SCOPE", "tests")
    monkeypatch.delenv("ENTREPOT_SESSION", raising=False)
    yield
    close_all()


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Storage options of an S3 server with a bucket that ``ENTREPOT_DURABLE`` names; the environment has none."""
    import s3fs
    from s3_in_memory import S3Server

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    server = S3Server()
    s3fs.S3FileSystem(**server.options).mkdir("values")
    monkeypatch.setenv("ENTREPOT_DURABLE", "s3://values/runs")
    yield server.options
    close_all()
    server.stop()
