"""Assets with the URI ``entrepot://SCOPE/SESSION/NAME``; Airflow finds this module through the provider's metadata."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, urlsplit

from entrepot_io.filesystem.paths import decode, encode, is_regular

if TYPE_CHECKING:
    from airflow.sdk import Asset

SCHEME = "entrepot"


def create_asset(*, scope: str, name: str, session: str = "", extra: dict[str, Any] | None = None) -> Asset:
    """Return the asset of a named object.

    Args:
        scope: of the installation.
        name: of the object.
        session: its name; default: the scope's own, which outlives runs.
        extra: as for ``Asset``.
    """
    from airflow.sdk import Asset

    return Asset(uri=f"{SCHEME}://{encode(scope)}/{encode(session)}/{name}", extra=extra)


def sanitize_uri(uri: SplitResult) -> SplitResult:
    """Return the canonical form of an asset's URI.

    Raises:
        ValueError: it does not name an object.
    """
    session, _, name = uri.path.lstrip("/").partition("/")
    if not uri.netloc or not session or not name or not is_regular(name):
        raise ValueError(
            f"an asset of Entrepot has a URI of the form {SCHEME}://SCOPE/SESSION/NAME ('-' is the scope's own "
            f"session), not {uri.geturl()!r}"
        )
    path = f"/{encode(decode(session))}/{name}"
    return SplitResult(uri.scheme, encode(decode(uri.netloc)), path, "", "")


def convert_asset_to_openlineage(asset: Any, lineage_context: object) -> Any:
    """Return the dataset of OpenLineage that an asset is.

    The namespace is the scope. The name is session and name, or for the value of an XCom, what is the same in all runs:
    DAG, task and key. Such a value's dataset has its schema, if it is a table, and its rows and bytes.

    Args:
        asset: with a URI of this scheme.
        lineage_context: not used.
    """
    from airflow.providers.common.compat.openlineage import facet  # pyright: ignore[reportAttributeAccessIssue]

    classes: Any = facet
    parsed = urlsplit(asset.uri)
    extra: Mapping[str, Any] = asset.extra or {}
    name = {"namespace": f"{SCHEME}://{parsed.netloc}", "name": extra.get("dataset") or parsed.path.lstrip("/")}
    if "dataset" not in extra:
        return classes.Dataset(**name)
    facets = {}
    if "columns" in extra:
        fields = [classes.SchemaDatasetFacetFields(name=column, type=kind) for column, kind in extra["columns"]]
        facets["schema"] = classes.SchemaDatasetFacet(fields=fields)
    if not extra.get("output"):
        return classes.InputDataset(**name, facets=facets)
    statistics = classes.OutputStatisticsOutputDatasetFacet(rowCount=extra.get("rows"), size=extra["bytes"])
    return classes.OutputDataset(**name, facets=facets, outputFacets={"outputStatistics": statistics})
