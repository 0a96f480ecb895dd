"""The dashboard, by Grafana's own types: it has no field that Grafana does not know, and no value of another type."""

from __future__ import annotations

import copy
import enum
import json
import typing
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import pydantic
import pytest

dashboards = pytest.importorskip(
    "grafana_foundation_sdk.models.dashboard", reason="grafana-foundation-sdk is not installed"
)
from grafana_foundation_sdk.cog import plugins  # noqa: E402
from grafana_foundation_sdk.cog.encoder import JSONEncoder  # noqa: E402

# Grafana's page for variables writes it beside the query, and shows it; the schema does not have it.
BESIDE_THE_SCHEMA = {".templating.list[1].definition"}


@pytest.fixture(scope="module", autouse=True)
def known_panels() -> None:
    """Teach the library the options of each kind of panel and query."""
    plugins.register_default_plugins()


@pytest.fixture
def dashboard() -> dict[str, Any]:
    """The dashboard that the package has."""
    document: dict[str, Any] = json.loads(files("entrepot_metrics").joinpath("grafana.json").read_text("utf-8"))
    return document


def lost(before: Any, after: Any, path: str = "") -> Iterator[str]:
    """Where a document has something that its decoded form has not."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name, value in before.items():
            yield from lost(value, after.get(name), f"{path}.{name}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (first, second) in enumerate(zip(before, after, strict=True)):
            yield from lost(first, second, f"{path}[{index}]")
    elif before != after:
        yield path


def has_choices(kind: Any) -> bool:
    """Whether a type is an enumeration, of which decoded documents have the plain values; or may be one."""
    return any(isinstance(each, type) and issubclass(each, enum.Enum) for each in (kind, *typing.get_args(kind)))


def wrong_types(value: Any, path: str = "") -> Iterator[str]:
    """Where a decoded document has a value of another type than its class declares."""
    if isinstance(value, list):
        for index, each in enumerate(value):
            yield from wrong_types(each, f"{path}[{index}]")
    elif type(value).__module__.startswith("grafana_foundation_sdk.models"):
        for name, kind in typing.get_type_hints(type(value)).items():
            field = getattr(value, name)
            try:
                adapter = pydantic.TypeAdapter(kind, config=pydantic.ConfigDict(arbitrary_types_allowed=True))
                adapter.validate_python(field, strict=not has_choices(kind))
            except pydantic.ValidationError:
                yield f"{path}.{name}"
            except pydantic.errors.PydanticSchemaGenerationError:
                pass  # an interface: its classes are checked below
            yield from wrong_types(field, f"{path}.{name}")


def problems(document: dict[str, Any]) -> set[str]:
    """Where a document is no dashboard."""
    decoded = dashboards.Dashboard.from_json(copy.deepcopy(document))
    encoded = json.loads(JSONEncoder().encode(decoded))
    return {*lost(document, encoded), *wrong_types(decoded)}


def test_the_dashboard_is_one(dashboard: dict[str, Any]) -> None:
    assert problems(dashboard) == BESIDE_THE_SCHEMA


@pytest.mark.parametrize(
    ("place", "name", "value"),
    [
        ((), "titel", "a field that there is not"),
        ((), "refresh", 30),
        ((), "schemaVersion", "39"),
        (("panels", 0), "gridPos", {"x": 0, "y": 0, "w": "4", "h": 4}),
        (("panels", 0, "fieldConfig", "defaults"), "unit", 5),
        (("panels", 0, "targets", 0), "exp", "sum(entrepot_up)"),
        (("panels", 0, "targets", 0), "expr", ["sum(entrepot_up)"]),
        (("templating", "list", 1), "multi", "yes"),
        (("templating", "list", 1), "type", "list"),
        (("panels", 5, "options", "tooltip"), "mode", "some"),
    ],
)
def test_what_is_none_is_noticed(dashboard: dict[str, Any], place: tuple[Any, ...], name: str, value: Any) -> None:
    part: Any = dashboard
    for step in place:
        part = part[step]
    part[name] = value
    assert problems(dashboard) > BESIDE_THE_SCHEMA
