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
