"""The check of the plugins' compat packages finds what only those may use, and nothing else."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from entrepot_io.private_names import PrivateName

sys.path.insert(0, str(Path(__file__).parent))

from tool_modules import ROOT, load_tool

NAMES = (PrivateName("host.io", "Dataset._EPHEMERAL", "test"), PrivateName("host.runner", "Runner._release", "test"))


@pytest.fixture
def checker(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """tools/check_private_names.py as a module."""
    return load_tool("check_private_names", monkeypatch)


@pytest.fixture
def check(checker: ModuleType, tmp_path: Path) -> Callable[..., list[str]]:
    """``check(code, file)``: check a plugin for the package ``host`` whose only module has this code."""

    def run(code: str, file: str = "module.py") -> list[str]:
        plugin = checker.Plugin(
            folder="plugin/entrepot_host",
            distribution="host",
            packages=("host", "host_shared"),
            private_modules=("host.models", "host_shared"),
            documented=frozenset({"_describe"}),
        )
        path = tmp_path / plugin.folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code)
        reported = list(checker.violations(tmp_path, plugin, NAMES))
        prefix = f"plugin/entrepot_host/{file}:"
        assert all(line.startswith(prefix) for line in reported)
        return [line.removeprefix(prefix) for line in reported]

    return run


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("import host.models.run", "1: imports host.models.run"),
        ("import host_shared", "1: imports host_shared"),
        ("from host.models import Run", "1: imports host.models.Run"),
        ("from host import models", "1: imports host.models"),
        ("from host._core import run", "1: imports host._core.run"),
        ("from host.io import _open", "1: imports host.io._open"),
        ("def f():\n    from host.models import Run", "2: imports host.models.Run"),
        ("if TYPE_CHECKING:\n    from host.models import Run", "2: imports host.models.Run"),
        ("import_module('host.models.run')", "1: names host.models.run"),
        ("context._step", "1: uses _step of an object"),
        ("context._step.key", "1: uses _step of an object"),
        ("getattr(context, '_step', None)", "1: uses _step of an object"),
        ("setattr(context, '_step', None)", "1: uses _step of an object"),
        ("import host\nhost.run._step", "2: uses _step of an object"),
        ("class A(Dataset):\n    def f(self):\n        self._EPHEMERAL = True", "3: uses _EPHEMERAL"),
        ("class A(Runner):\n    def _release(self): ...", "2: overrides _release"),
        ("ATTRIBUTE = '_EPHEMERAL'", "1: names _EPHEMERAL"),
        ("type(error).__name__ == 'Job'", "1: compares a class by its name"),
        ("vars(job)['kind']", "1: reads the vars() of another object"),
        ("node.__dict__['run'] = run", "1: reads the __dict__ of another object"),
        ("frame.f_locals['catalog']", "1: reads a caller's frame"),
    ],
)
def test_a_private_name_is_found(check: Callable[..., list[str]], code: str, text: str) -> None:
    (line,) = check(code)
    assert line.startswith(text)
    assert line.endswith("; only plugin/entrepot_host/compat may")


@pytest.mark.parametrize(
    "code",
    [
        "import host, host.io\nfrom host import run\nfrom host.io import Dataset",
        "import other.models\nfrom other._core import run\nimport sys\nsys._getframe()",
        '"""Documents host.models."""',
        "text = 'see host.models for more'",
        "class A:\n    def __init__(self):\n        self._own = 1\n    def f(self, other):\n        return other._own",
        "_lock = None\ndef _f(): ...\n_f()",
        "class A(Dataset):\n    def _describe(self): ...\n    def f(self, other):\n        return other._describe()",
        "class A:\n    def __getstate__(self):\n        return self.__dict__ | {'a': type(self).__name__}",
    ],
)
def test_other_names_pass(check: Callable[..., list[str]], code: str) -> None:
    assert check(code) == []


def test_the_compat_package_may_use_them(check: Callable[..., list[str]]) -> None:
    assert check("from host.models import Run\nRun._state", "compat/database.py") == []
    assert check("from host.models import Run", "compatible.py") != [], "a module of another name may not"


def test_the_plugins_pass(checker: ModuleType) -> None:
    for plugin in checker.PLUGINS:
        assert list(checker.violations(ROOT, plugin, checker.private_names(ROOT, plugin))) == []


def test_each_name_in_a_table_is_used_by_its_compat_package(checker: ModuleType) -> None:
    for plugin in checker.PLUGINS:
        files = [file for file in (ROOT / plugin.table).parent.glob("*.py") if file.name != plugin.table.name]
        for name in checker.private_names(ROOT, plugin):
            (file,) = [file for file in files if file.stem == name.why.partition(":")[0]]
            words = {name.attribute.rpartition(".")[2], name.attribute.partition(".")[0]}
            text = file.read_text()
            assert any(word in text for word in words) or name.module in text, f"{file.name} does not use {name.text}"


# --- names that an installed orchestrator lacks; here the standard library stands in for one


@pytest.mark.parametrize(
    ("module", "attribute"),
    [
        ("json", ""),
        ("json.decoder", "JSONDecoder.decode"),
        ("json.decoder", "JSONDecoder.scan_once"),  # only instances have it
        ("dataclasses", "Field.name"),  # a slot
    ],
)
def test_a_name_that_is_there_is_found(checker: ModuleType, module: str, attribute: str) -> None:
    assert checker.missing_names([PrivateName(module, attribute, "test")], "1.0") == []


@pytest.mark.parametrize(
    ("module", "attribute"),
    [
        ("json.invented", ""),
        ("json", "invented"),
        ("json.decoder", "JSONDecoder.invented"),
        ("json.decoder", "Invented.decode"),
        ("json.decoder", "JSONDecoder.decode.invented"),
    ],
)
def test_an_invented_name_is_missing(checker: ModuleType, module: str, attribute: str) -> None:
    name = PrivateName(module, attribute, "test")
    (line,) = checker.missing_names([name], "1.0")
    assert line.startswith(f"{name.text}: ")


def test_only_the_names_of_the_installed_version_are_looked_for(checker: ModuleType) -> None:
    later = PrivateName("json", "invented", "test", since="3.10")
    earlier = PrivateName("json", "invented", "test", until="3.3")
    assert checker.missing_names([later, earlier], "3.9.1") == []
    assert len(checker.missing_names([later, earlier], "3.10.0")) == 1
    assert len(checker.missing_names([later, earlier], "3.2.9")) == 1
