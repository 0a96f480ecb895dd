"""fsspec's own suite for file systems."""

from __future__ import annotations

from typing import Any

import pytest
from entrepot_io.filesystem.file_system import EntrepotFileSystem

pytest.importorskip("fsspec.tests.abstract")

from fsspec.tests.abstract import (
    AbstractCopyTests,
    AbstractFixtures,
    AbstractGetTests,
    AbstractOpenTests,
    AbstractPipeTests,
    AbstractPutTests,
)


class _Fixtures(AbstractFixtures):  # type: ignore[misc]
    @pytest.fixture
    def fs(self, new_fs: Any) -> EntrepotFileSystem:
        made: EntrepotFileSystem = new_fs()
        return made

    @pytest.fixture
    def fs_path(self) -> str:
        return "default/suite/folder"

    @pytest.fixture
    def fs_join(self) -> Any:
        return lambda *parts: "/".join(parts)

    @pytest.fixture
    def supports_empty_directories(self) -> bool:
        return False


class TestCopy(AbstractCopyTests, _Fixtures):  # type: ignore[misc]
    pass


class TestGet(AbstractGetTests, _Fixtures):  # type: ignore[misc]
    pass


class TestPut(AbstractPutTests, _Fixtures):  # type: ignore[misc]
    pass


class TestOpen(AbstractOpenTests, _Fixtures):  # type: ignore[misc]
    pass


class TestPipe(AbstractPipeTests, _Fixtures):  # type: ignore[misc]
    pass
