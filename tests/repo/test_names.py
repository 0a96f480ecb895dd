"""The check of names finds what it should, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from tool_modules import load_tool


@pytest.fixture(scope="module")
def checker() -> ModuleType:
    """tools/check_names.py as a module."""
    return load_tool("check_names")


def planted(checker: ModuleType, root: Path, file: str, code: str) -> list[str]:
    """The violations in one file with this code."""
    (root / file).parent.mkdir(parents=True, exist_ok=True)
    (root / file).write_text(code)
    lines: list[str] = checker.violations(root, [file])
    return lines


@pytest.mark.parametrize(
    "code",
    [
        "said = 1",
        "def f(told: str) -> None: ...",
        "def found() -> None: ...",
        "class there: ...",
        "x = [one for one in range(3)]",
        "if (found := f()):\n    pass",
        "class A:\n    def __init__(self) -> None:\n        self._said = 1",
        "try:\n    pass\nexcept OSError as told:\n    pass",
        "match x:\n    case [known]:\n        pass",
        "match x:\n    case int() as known:\n        pass",
        "match x:\n    case [_, *there]:\n        pass",
        "match x:\n    case {'a': 1, **found}:\n        pass",
        "import numpy as one",
        "from numpy import array as one",
    ],
)
def test_a_name_in_python_that_says_nothing_is_found(checker: ModuleType, tmp_path: Path, code: str) -> None:
    (line,) = planted(checker, tmp_path, "a.py", code)
    assert line.startswith("a.py:")
    assert line.endswith("does not say what it holds")


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("int one = 1;", "one"),
        ("const std::string told{text};", "told"),
        ("std::vector<std::pair<int, int>> found;", "found"),
        ("[[maybe_unused]] const ssize_t said = write(fd);", "said"),
        ("void f(const Kept& one, int other);", "one"),
        ("bool is_right(Client& client,\n              const Kept* one) {}", "one"),
        ("for (const auto& one : all) {}", "one"),
        ("for (const auto& [key, known] : all) {}", "known"),
        ("auto [found, other] = pair();", "found"),
        ("if (const auto found = map.find(key); found != map.end()) {}", "found"),
        ("f([](auto found) { use(found); });", "found"),
        ("std::string said(const std::string& name) {}", "said"),
        ("struct stat there{};", "there"),
        ("class Filler {\n  std::deque<int>& known_;\n};", "known_"),
        ("ASSIGN_OR_RETURN(const std::vector<Entry> found, list());", "found"),
    ],
)
@pytest.mark.parametrize("file", ["a.cpp", "a.h"])
def test_a_name_in_cpp_that_says_nothing_is_found(
    checker: ModuleType, tmp_path: Path, file: str, code: str, name: str
) -> None:
    (line,) = planted(checker, tmp_path, file, code)
    assert line.startswith(f"{file}:{code[: code.index(name)].count(chr(10)) + 1}: {name!r} ")


@pytest.mark.parametrize(
    "code",
    [
        "\tone := 1",
        "\tfound, err := f()",
        "\tkey, known := from[key]",
        "\tif there, ok := from[key]; ok {",
        "\tfor _, one := range all {",
        "\tvar found []any",
        "func told(text string) {}",
        "func (p *plugin) known() bool { return true }",
        "func f(key string, found any) any { return nil }",
        "func f(one *object) {}",
        "\tswitch one := value.(type) {",
        "type plugin struct {\n\tknown *objects\n}",
    ],
)
def test_a_name_in_go_that_says_nothing_is_found(checker: ModuleType, tmp_path: Path, code: str) -> None:
    (line,) = planted(checker, tmp_path, "a.go", code)
    assert line.endswith("does not say what it holds")


@pytest.mark.parametrize(
    ("file", "component"),
    [
        ("_clerk.py", "_clerk"),
        ("janitor.cpp", "janitor"),
        ("waiters.h", "waiters"),
        ("watching.go", "watching"),
        ("restoring/__init__.py", "restoring"),
        ("policy/trees/_value.py", "trees"),
        ("tests/test_expiry.py", "test_expiry"),
        ("tests/hole_set_test.cpp", "hole_set_test"),
        ("site_options.schema.py", "site_options"),
    ],
)
def test_a_former_module_name_is_found_in_every_component(
    checker: ModuleType, tmp_path: Path, file: str, component: str
) -> None:
    (line,) = planted(checker, tmp_path, file, "")
    assert line.startswith(f"{file}:1: ")
    assert repr(component) in line


def test_the_former_name_of_a_public_module_is_an_alias_for_a_while(checker: ModuleType, tmp_path: Path) -> None:
    assert planted(checker, tmp_path, "io_managers/entrepot_io/handoff.py", "") == []


@pytest.mark.parametrize(
    ("file", "code"),
    [
        ("client.py", 'value = {"said": 1}["said"]  # one of them is told\nevent_told = value.said\nf(found=1)'),
        ("client.py", "import there\nfrom a import known\nmatch x:\n    case {'one': value}:\n        pass"),
        ("client.cpp", '// A copy of what is there;\nint x = 1;  // int one = 1;\nf("int told = 1;");\n'),
        ("client.cpp", "/* int one = 1;\n   int told; */\nauto x = R\"(int one = 1;)\";\nint y = 1'000; // '\n"),
        ("client.cpp", "int f() { return found; }\nauto x = a * one;\nbool b = a > one && c->known;\nif (x.found) {}"),
        ("client.cpp", "int one_more = 1;\nint kOne = 2;\nint not_known = 3;\nfor (auto& item : there) {}"),
        (
            "client.go",
            '// found := 1\nx := "one := 1"\ny := `var found []any`\nreturn found\none.bytes(2)\nallFound := 1',
        ),
        ("tests/seen_by.go", "x.found = 1\nif x == one {\n}\nf(one, found)"),
        ("lazy_imports.py", ""),
        ("policies_of_pods/access.py", ""),
    ],
)
def test_ordinary_names_pass(checker: ModuleType, tmp_path: Path, file: str, code: str) -> None:
    assert planted(checker, tmp_path, file, code) == []


@pytest.mark.parametrize("suffix", ["py", "cpp", "h", "go"])
def test_every_language_is_checked(tmp_path: Path, suffix: str) -> None:
    (tmp_path / f"janitor.{suffix}").write_text("")
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    subprocess.run(["git", "add", "."], cwd=tmp_path, check=True)
    tool = Path(__file__).resolve().parents[2] / "tools/check_names.py"
    done = subprocess.run([sys.executable, str(tool), str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.count("janitor")) == (1, 2)
