"""The former package ``entrepot_io.policy`` still works, and warns."""

from __future__ import annotations

from importlib import import_module

import entrepot_policy
import pytest
from entrepot_policy.state import events


@pytest.mark.parametrize(
    ("former", "current"), [*((name, name) for name in entrepot_policy.__all__), ("NoPlan", "PlanningError")]
)
def test_names_of_the_former_package(former: str, current: str) -> None:
    message = rf"^entrepot_io\.policy\.{former} is deprecated: use entrepot_policy\.{current}$"
    with pytest.warns(DeprecationWarning, match=message):
        value = getattr(import_module("entrepot_io.policy"), former)
    assert value is getattr(entrepot_policy, current)


@pytest.mark.parametrize("name", ["Event", "EventLog", "log_file", "read_events", "follow"])
def test_names_of_the_former_module_of_events(name: str) -> None:
    message = rf"^entrepot_io\.policy\.events\.{name} is deprecated: use entrepot_policy\.state\.events\.{name}$"
    with pytest.warns(DeprecationWarning, match=message):
        value = getattr(import_module("entrepot_io.policy.events"), name)
    assert value is getattr(events, name)


def test_the_former_package_has_nothing_else() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'NoSuchName'"):
        _ = import_module("entrepot_io.policy").NoSuchName
