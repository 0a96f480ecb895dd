"""Former public names keep working for one version, and warn."""

from __future__ import annotations

from importlib import import_module

import pytest


@pytest.mark.parametrize(
    ("former", "current"),
    [
        ("entrepot.Receipt", "entrepot.PutResult"),
        ("entrepot.inventory.Held", "entrepot.inventory.ObjectListing"),
        ("entrepot.parts.discard", "entrepot.raw_objects.discard"),
        ("entrepot.parts.Listed", "entrepot.raw_objects.ObjectEntry"),
        ("entrepot.parts.ObjectParts", "entrepot.raw_objects.RawObject"),
        ("entrepot.parts.PartsWriter", "entrepot.raw_objects.RawObjectWriter"),
        ("entrepot.parts.listed", "entrepot.raw_objects.iter_entries"),
        ("entrepot.parts.look", "entrepot.raw_objects.ensure_connected"),
        ("entrepot.parts.look_up", "entrepot.raw_objects.entry_of"),
        ("entrepot.views.TABLE", "entrepot.collection_plugins.TABLE"),
        ("entrepot.views.Traits", "entrepot.collection_plugins.ValueTraits"),
        ("entrepot.views.Views", "entrepot.collection_plugins.CollectionPlugin"),
    ],
)
def test_a_former_name_works_and_warns(former: str, current: str) -> None:
    former_module, _, former_name = former.rpartition(".")
    current_module, _, current_name = current.rpartition(".")
    with pytest.warns(DeprecationWarning, match=rf"^{former} is deprecated: use {current}$") as caught:
        value = getattr(import_module(former_module), former_name)
    assert caught[0].filename == __file__
    assert value is getattr(import_module(current_module), current_name)


@pytest.mark.parametrize("module", ["entrepot", "entrepot.inventory", "entrepot.parts", "entrepot.views"])
def test_other_names_are_unknown(module: str) -> None:
    with pytest.raises(AttributeError):
        _ = import_module(module).no_such_name
