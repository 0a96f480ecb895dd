"""Directories on the control plane, each in a namespace of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from entrepot_cluster.directory import Directory, Registration, open_directory

TIMEOUT = 60.0  # for a request: a watchdog
_numbers = count(1)


@pytest.fixture(scope="module")
def namespace(entrepot_cluster: Any) -> str:
    """The namespace of a module's directories."""
    return str(entrepot_cluster.namespace("directory"))


@pytest.fixture
def name() -> str:
    """The name of a test's directory."""
    return f"d{next(_numbers)}"


@pytest.fixture
def open_it(entrepot_cluster: Any, namespace: str, name: str) -> Iterator[Callable[..., Directory]]:
    """``open_it(kubeconfig, **options)``: open the test's directory; closed after the test."""
    opened: list[Directory] = []

    def open_one(kubeconfig: Path | None = None, **options: Any) -> Directory:
        url = f"kubernetes://{namespace}/{name}?kubeconfig={kubeconfig or entrepot_cluster.kubeconfig}"
        opened.append(open_directory(url, **{"timeout": TIMEOUT} | options))
        return opened[-1]

    yield open_one
    for directory in opened:
        directory.close()


@pytest.fixture
def join() -> Callable[..., Registration]:
    """``join(directory, number, **options)``: register an instance of that number, with a lease that does not end."""

    def register(directory: Directory, number: int, **options: Any) -> Registration:
        settings: dict[str, Any] = {"protocol": 1, "started_at": 1000.0, "lease_seconds": 3600.0} | options
        return directory.register(f"{number:032x}", f"host-{number}", [f"10.0.0.{number}:7000"], **settings)

    return register
