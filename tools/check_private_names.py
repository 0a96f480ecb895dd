"""Holds the orchestrator plugins to their ``compat`` packages: no other module uses a private name of its orchestrator.

Without arguments: prints each violation as ``file:line: what`` and exits 1 if there is one. Found by syntax tree:

* imports of private modules, and of names with a leading underscore; strings that name such a module
* attributes with a leading underscore, by ``.`` or ``getattr``, unless the file itself gives them to its own objects
* any attribute, method or string that ``PRIVATE_NAMES`` lists with a leading underscore
* comparing a class by its name, another object's ``__dict__`` or ``vars``, and local variables of a caller

``--installed``: prints the names of every plugin's ``PRIVATE_NAMES`` that the installed orchestrator does not have; run
it in an environment with a new version of one.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.util
import inspect
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol

ROOT = Path(__file__).resolve().parent.parent


class Listed(Protocol):
    """An entry of ``PRIVATE_NAMES``; see :class:`entrepot_io.private_names.PrivateName`."""

    @property
    def module(self) -> str: ...
    @property
    def attribute(self) -> str: ...
    @property
    def since(self) -> str: ...
    @property
    def until(self) -> str: ...
    @property
    def text(self) -> str: ...


@dataclass(frozen=True)
class Plugin:
    """A plugin, and what is private of its orchestrator.

    Attributes:
        folder: folder of its package, relative to the root.
        distribution: distribution whose version ``since`` and ``until`` mean.
        packages: top-level packages of the orchestrator.
        private_modules: modules that it does not document, with everything below them; besides those with a component
            that has a leading underscore.
        documented: names with a leading underscore that it documents for subclasses.
    """

    folder: str
    distribution: str
    packages: tuple[str, ...]
    private_modules: tuple[str, ...]
    documented: frozenset[str] = frozenset()

    @property
    def table(self) -> Path:
        """File of ``PRIVATE_NAMES``, relative to the root."""
        return Path(self.folder) / "compat" / "private_names.py"

    def is_private_module(self, module: str) -> bool:
        """Return whether a module of the orchestrator is private."""
        first, *rest = module.split(".")
        if first not in self.packages:
            return False
        return any(is_private(part) for part in rest) or any(
            module == private or module.startswith(f"{private}.") for private in self.private_modules
        )


PLUGINS = (
    Plugin(
        folder="airflow_provider/entrepot_airflow",
        distribution="apache-airflow-core",
        packages=("airflow",),
        # https://airflow.apache.org/docs/apache-airflow/stable/public-airflow-interface.html: neither the models of
        # the database, nor anything that it does not name.
        private_modules=(
            "airflow.api_fastapi",
            "airflow.dag_processing",
            "airflow.executors",
            "airflow.jobs",
            "airflow.listeners.listener",
            "airflow.models",
            "airflow.sdk.api",
            "airflow.sdk.definitions",
            "airflow.sdk.execution_time",
            "airflow.sdk.listener",
            "airflow.serialization",
            "airflow.settings",
            "airflow.ti_deps",
            "airflow.utils",
        ),
    ),
    Plugin(
        folder="dagster_integration/entrepot_dagster",
        distribution="dagster",
        packages=("dagster", "dagster_k8s", "dagster_shared"),
        private_modules=("dagster_k8s.client", "dagster_k8s.executor", "dagster_k8s.job", "dagster_shared"),
    ),
    Plugin(
        folder="kedro_dataset/entrepot_kedro",
        distribution="kedro",
        packages=("kedro",),
        private_modules=(
            "kedro.framework.hooks.manager",
            "kedro.framework.hooks.markers",
            "kedro.framework.hooks.specs",
            "kedro.io.cached_dataset",
            "kedro.io.core",
            "kedro.runner.runner",
            "kedro.runner.task",
        ),
        # https://docs.kedro.org/en/stable/extend/how_to_create_a_custom_dataset/
        documented=frozenset({"_describe", "_exists", "_release"}),
    ),
)

FRAME_ATTRIBUTES = frozenset({"f_back", "f_code", "f_globals", "f_locals"})
BY_NAME = frozenset({"getattr", "hasattr", "setattr", "delattr"})


def is_private(name: str) -> bool:
    """Return whether a name has a leading underscore; not a special one such as ``__name__``."""
    return name.startswith("_") and not (name.startswith("__") and name.endswith("__"))


def violations(root: Path, plugin: Plugin, names: Iterable[Listed]) -> Iterator[str]:
    """Yield what the modules of a plugin use of its orchestrator that only its ``compat`` may use.

    Args:
        root: root of the repository.
        plugin: the plugin.
        names: its ``PRIVATE_NAMES``.
    """
    listed = frozenset(last for name in names if is_private(last := name.attribute.rpartition(".")[2]))
    compat = plugin.table.parent
    for file in sorted((root / plugin.folder).rglob("*.py")):
        path = file.relative_to(root)
        if compat not in path.parents:
            tree = ast.parse(file.read_text(encoding="utf-8"), str(file))
            problems = _ModuleCheck(plugin, listed, tree).problems
            yield from (f"{path}:{line}: {what}" for line, what in sorted(problems))


class _ModuleCheck(ast.NodeVisitor):
    """Collects the violations of one module as pairs of line and text."""

    def __init__(self, plugin: Plugin, listed: frozenset[str], tree: ast.Module) -> None:
        self._plugin = plugin
        self._listed = listed
        self._own = _own_names(tree) | plugin.documented
        self._foreign_modules = _imported_modules(tree, plugin.packages)
        self._docstrings = {id(text) for text in _docstrings(tree)}
        self.problems: set[tuple[int, str]] = set()
        self.visit(tree)

    def _report(self, node: ast.AST, what: str) -> None:
        self.problems.add((getattr(node, "lineno", 1), f"{what}; only {self._plugin.table.parent} may"))

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            if self._plugin.is_private_module(alias.name):
                self._report(node, f"imports {alias.name}")

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        if node.level or module.partition(".")[0] not in self._plugin.packages:
            return
        for alias in node.names:
            name = f"{module}.{alias.name}"
            if self._plugin.is_private_module(module) or self._plugin.is_private_module(name):
                self._report(node, f"imports {name}")

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self.generic_visit(node)
        if node.attr in FRAME_ATTRIBUTES:
            self._report(node, f"reads a caller's frame ({node.attr})")
        elif node.attr == "__dict__" and not _is_self(node.value):
            self._report(node, "reads the __dict__ of another object")
        elif is_private(node.attr):
            self._check_attribute(node, node.value, node.attr)

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        function = node.func.id if isinstance(node.func, ast.Name) else ""
        if function in BY_NAME and len(node.args) >= 2:
            name = node.args[1]
            if isinstance(name, ast.Constant) and isinstance(name.value, str) and is_private(name.value):
                self._check_attribute(node, node.args[0], name.value)
        elif function == "vars" and node.args and not _is_self(node.args[0]):
            self._report(node, "reads the vars() of another object")

    def visit_Compare(self, node: ast.Compare) -> None:
        self.generic_visit(node)
        for side in (node.left, *node.comparators):
            if (
                isinstance(side, ast.Attribute)
                and side.attr in ("__name__", "__qualname__")
                and isinstance(side.value, ast.Call)
                and isinstance(side.value.func, ast.Name)
                and side.value.func.id == "type"
            ):
                self._report(node, "compares a class by its name")

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._check_definition(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._check_definition(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if not isinstance(node.value, str) or id(node) in self._docstrings:
            return
        if self._plugin.is_private_module(node.value) or node.value in self._listed:
            self._report(node, f"names {node.value}")

    def _check_attribute(self, node: ast.AST, value: ast.expr, name: str) -> None:
        if name in self._listed:
            self._report(node, f"uses {name}")
        elif isinstance(value, ast.Name) and value.id in self._foreign_modules:
            return
        elif name not in self._own:
            self._report(node, f"uses {name} of an object that is not this file's own")

    def _check_definition(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if node.name in self._listed:
            self._report(node, f"overrides {node.name}")
        self.generic_visit(node)


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def _own_names(tree: ast.Module) -> frozenset[str]:
    """Return the private names that a module defines: its functions, its classes' methods and attributes."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _is_self(node.value):
            names.add(node.attr)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return frozenset(filter(is_private, names))


def _imported_modules(tree: ast.Module, packages: Sequence[str]) -> frozenset[str]:
    """Return the names of imported modules that are not the orchestrator's."""
    return frozenset(
        alias.asname or alias.name.partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
        if alias.name.partition(".")[0] not in packages
    )


def _docstrings(tree: ast.Module) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.value


# --- the names and the installed orchestrator


def private_names(root: Path, plugin: Plugin) -> tuple[Listed, ...]:
    """Return a plugin's ``PRIVATE_NAMES``."""
    spec = importlib.util.spec_from_file_location("private_names", root / plugin.table)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    names: tuple[Listed, ...] = module.PRIVATE_NAMES
    return names


def missing_names(names: Iterable[Listed], version: str) -> list[str]:
    """Return the names that the installed orchestrator does not have, with the reason.

    Args:
        names: the names; those that a version does not have by ``since`` or ``until`` are not looked for.
        version: version of the orchestrator.
    """
    missing: list[str] = []
    for name in names:
        if is_expected(name, version):
            try:
                _resolve(name.module, name.attribute)
            except (ImportError, AttributeError) as error:
                missing.append(f"{name.text}: {error}")
    return missing


def is_expected(name: Listed, version: str) -> bool:
    """Return whether a version of the orchestrator has a name."""
    return not (name.since and _numbers(version) < _numbers(name.since)) and not (
        name.until and _numbers(version) >= _numbers(name.until)
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def _resolve(module: str, attribute: str) -> None:
    value: Any = importlib.import_module(module)
    for part in filter(None, attribute.split(".")):
        if isinstance(value, type) and not hasattr(value, part) and _is_instance_attribute(value, part):
            return
        value = getattr(value, part, None) if _is_declared(value, part) else getattr(value, part)


def _is_declared(value: Any, name: str) -> bool:
    """Return whether a module declares a variable that is assigned later, by another part of the orchestrator."""
    return inspect.ismodule(value) and name in getattr(value, "__annotations__", {})


def _is_instance_attribute(cls: type, name: str) -> bool:
    """Return whether a class declares an attribute, or a method of it assigns one."""
    for base in cls.__mro__:
        if name in inspect.get_annotations(base):
            return True
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(base)))
        except (OSError, TypeError):
            continue
        if name in _own_names(tree) | {
            node.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _is_self(node.value)
        }:
            return True
    return False


def main() -> int:
    """Check the plugins, or with ``--installed`` the orchestrators."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--installed", action="store_true", help="check the installed orchestrators instead")
    parser.add_argument("--root", type=Path, default=ROOT, help="root of the repository")
    options = parser.parse_args()
    sys.path.insert(0, str(options.root / "io_managers"))  # the tables import entrepot_io
    sys.path.insert(0, str(options.root / "core" / "python"))
    lines: list[str] = []
    for plugin in PLUGINS:
        names = private_names(options.root, plugin)
        if not options.installed:
            lines += violations(options.root, plugin, names)
            continue
        try:
            version = metadata.version(plugin.distribution)
        except metadata.PackageNotFoundError:
            print(f"{plugin.distribution} is not installed")
            continue
        print(f"{plugin.distribution} {version}: {len(names)} names")
        lines += missing_names(names, version)
    for line in lines:
        print(line)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
