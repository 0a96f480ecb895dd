"""Former names of the package still work, and warn."""

from __future__ import annotations

import pytest


def test_former_names_warn() -> None:
    pytest.importorskip("airflow.providers.cncf.kubernetes")
    import entrepot_airflow

    with pytest.warns(DeprecationWarning, match="FollowData is deprecated: use entrepot_airflow.DataLocalityCallback"):
        former = entrepot_airflow.FollowData
    assert former is entrepot_airflow.DataLocalityCallback
