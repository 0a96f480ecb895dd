"""Former names of modules keep working for one version, and warn."""

from __future__ import annotations

from importlib import import_module

import pytest


@pytest.mark.parametrize(
    ("former", "current", "name"),
    [
        ("entrepot_io.handoff", "entrepot_io.values", "put_value"),
        ("entrepot_io.checkpoints", "entrepot_checkpoints", "list_checkpoints"),
    ],
)
def test_a_former_module_has_the_names_of_the_current_one_and_warns(former: str, current: str, name: str) -> None:
    alias = import_module(former)
    with pytest.warns(DeprecationWarning, match=rf"^{former}\.{name} is deprecated: use {current}\.{name}$"):
        value = getattr(alias, name)
    assert value is getattr(import_module(current), name)
    with pytest.raises(AttributeError):
        alias.no_such_name  # noqa: B018
