"""The C++ layer check detects violations, and finds none in this repository."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from tool_modules import ROOT, load_tool


@pytest.fixture(scope="module")
def checker() -> ModuleType:
    """tools/check_layers.py as a module."""
    return load_tool("check_layers")


def _plant(root: Path, place: str, *lines: str) -> None:
    path = root / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


def test_this_repository_is_clean(checker: ModuleType) -> None:
    assert checker.violations(ROOT) == []


def test_what_is_allowed_passes(checker: ModuleType, tmp_path: Path) -> None:
    _plant(tmp_path, "core/src/base/id.h", "#pragma once", "#include <cstdint>", "#include <entrepot/codes.h>")
    _plant(tmp_path, "core/src/os/memfd.h", "#pragma once", "#include <sys/mman.h>", '#include "base/id.h"')
    _plant(tmp_path, "core/src/client/a.cpp", '#include "net/protocol.h"', '#include "client/a.h"')
    _plant(tmp_path, "core/src/base/cpu.cpp", "#include <sys/auxv.h>")
    _plant(tmp_path, "core/src/store/object/a.cpp", '#include "store/memory/a.h"', '#include "spill/backend.h"')
    _plant(tmp_path, "core/src/store/paging/a.cpp", '#include "store/types.h"', '#include "store/paging/a.h"')
    _plant(tmp_path, "core/src/store/a.cpp", '#include "store/store.h"', '#include "store/status/a.h"')
    _plant(tmp_path, "core/include/entrepot/entrepot.h", "#pragma once", "#include <stdint.h>")
    assert checker.violations(tmp_path) == []


@pytest.mark.parametrize(
    ("place", "line", "words"),
    [
        ("core/src/base/a.cpp", '#include "os/memfd.h"', "os is above base"),
        ("core/src/shm/a.cpp", '#  include "store/store.h"', "store is above shm"),
        ("core/src/client/a.cpp", '#include "store/store.h"', "client may not include store"),
        ("core/src/client/a.cpp", '#include "spill/backend.h"', "client may not include spill"),
        ("core/src/client/a.cpp", '#include "daemon/server.h"', "daemon is above client"),
        ("core/src/daemon/a.cpp", '#include "client/store.h"', "daemon may not include client"),
        ("core/src/bindings/a.cpp", '#include "daemon/server.h"', "bindings may not include daemon"),
        ("core/src/store/a.cpp", "#include <sys/mman.h>", "only in the layer os"),
        ("core/src/store/a.cpp", "#include <unistd.h>", "only in the layer os"),
        ("core/src/base/a.cpp", "#include <sys/auxv.h>", "only in the layer os"),
        ("core/src/store/a.cpp", '#include "spill/folder.h"', "store includes of spill only spill/backend.h"),
        ("core/src/store/memory/a.cpp", '#include "store/object/a.h"', "store/object is above store/memory"),
        ("core/src/store/paging/a.cpp", '#include "store/store.h"', "no header of store itself but"),
        ("core/src/store/attic/a.cpp", '#include "store/types.h"', "attic is not a folder of store"),
        ("core/src/store/a.cpp", '#include "store/attic/a.h"', "attic is not a folder of store"),
        ("core/src/client/a.cpp", "#include <arrow/api.h>", "does not link Arrow"),
        ("core/src/shm/a.cpp", '#include "../base/id.h"', "written from core/src"),
        ("core/src/shm/a.cpp", '#include "layout.h"', "written from core/src"),
        ("core/include/entrepot/a.h", '#include "base/id.h"', "public header"),
        ("core/src/attic/a.cpp", "", "not a layer"),
    ],
)
def test_a_planted_violation_is_found(checker: ModuleType, tmp_path: Path, place: str, line: str, words: str) -> None:
    _plant(tmp_path, place, "#pragma once", line)
    reported = checker.violations(tmp_path)
    assert len(reported) == 1
    assert words in reported[0]


def test_a_header_without_its_guard_is_found(checker: ModuleType, tmp_path: Path) -> None:
    _plant(tmp_path, "core/src/base/a.h", "int f();")
    assert checker.violations(tmp_path) == ["core/src/base/a.h:1: a header begins with #pragma once"]


def test_a_method_defined_outside_its_class_s_folder_is_found(checker: ModuleType, tmp_path: Path) -> None:
    """Also in a folder that may include the header; a nested class, or one of the same name there, is no violation."""
    _plant(
        tmp_path,
        "core/src/base/log.h",
        "#pragma once",
        "class Log {",
        "  struct Line {",
        "  };",
        "};",
        "struct A {",
        "};",
    )
    _plant(tmp_path, "core/src/base/log.cpp", "void Log::write() {", "}")
    _plant(tmp_path, "core/src/os/a.h", "#pragma once", "class A final : public B {", "};")
    _plant(
        tmp_path,
        "core/src/os/a.cpp",
        "A::A() {",
        "  Log::get();",
        "}",
        "Line Line::copy() {",
        "}",
        "int Log::size() const {",
        "}",
    )
    assert checker.violations(tmp_path) == ["core/src/os/a.cpp:6: Log is declared in base: define it there"]
