"""Names that moved from ``entrepot_io`` to ``entrepot_operator``: the former ones work for one version, and warn."""

from __future__ import annotations

from importlib import import_module

import pytest
from entrepot_operator.kubernetes.locations import ClusterLocations


@pytest.mark.parametrize(
    ("former", "current"),
    [
        ("entrepot_io.placement.inject", "entrepot_operator.placement.inject"),
        ("entrepot_io.placement.Reason", "entrepot_operator.placement.PlacementWarning"),
        ("entrepot_io.placement.Site", "entrepot_operator.placement.ClusterConfig"),
        ("entrepot_io.placement.locating.Places", "entrepot_operator.placement.locations.Locations"),
        ("entrepot_io.placement.locating.read_places", "entrepot_operator.placement.locations.parse_locations"),
        ("entrepot_io.placement.names.Site", "entrepot_operator.placement.names.ClusterConfig"),
        ("entrepot_io.placement.polled.Polled", "entrepot_operator.placement.cached_source.CachedSource"),
        ("entrepot_io.placement.reasons.Reason", "entrepot_operator.placement.warnings.PlacementWarning"),
        ("entrepot_io.placement.sources.FileSource", "entrepot_operator.placement.sources.FileSource"),
        ("entrepot_io.cluster.access.Access", "entrepot_operator.kubernetes.credentials.ClusterCredentials"),
        ("entrepot_io.cluster.access.find", "entrepot_operator.kubernetes.credentials.find"),
        ("entrepot_io.cluster.api.Api", "entrepot_operator.kubernetes.api.Api"),
        ("entrepot_io.cluster.places.ClusterPlaces", "entrepot_operator.kubernetes.locations.ClusterLocations"),
        ("entrepot_io.cluster.places.read_cluster", "entrepot_operator.kubernetes.locations.read_cluster_locations"),
        ("entrepot_operator.Site", "entrepot_operator.ClusterConfig"),
    ],
)
def test_a_former_name_works_and_warns(former: str, current: str) -> None:
    former_module, _, former_name = former.rpartition(".")
    current_module, _, current_name = current.rpartition(".")
    with pytest.warns(DeprecationWarning, match=rf"^{former} is deprecated: use {current}$"):
        value = getattr(import_module(former_module), former_name)
    assert value is getattr(import_module(current_module), current_name)


def test_a_former_module_has_no_other_names() -> None:
    with pytest.raises(AttributeError, match="Unknown"):
        _ = import_module("entrepot_io.placement").Unknown


def test_former_attributes_of_a_clusters_locations_work_and_warn() -> None:
    locations = ClusterLocations(expired_nodes=["node-a"])
    for former, current in (
        ("locals", "local_objects"),
        ("named", "find_by_name"),
        ("expired", "expired_nodes"),
    ):
        with pytest.warns(DeprecationWarning, match=rf"ClusterLocations\.{former} .*ClusterLocations\.{current}"):
            assert getattr(locations, former) == getattr(locations, current)
    assert not hasattr(locations, "unknown")
