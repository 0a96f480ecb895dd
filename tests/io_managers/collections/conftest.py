"""A store shared by the tests of a module, with a session for each test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import entrepot
import pytest


@pytest.fixture
def store(module_daemon: Any, request: pytest.FixtureRequest) -> Iterator[entrepot.Store]:
    """A connection with an empty session."""
    with entrepot.connect(module_daemon.address, scope="tests", session=request.node.name[:60]) as connected:
        yield connected
