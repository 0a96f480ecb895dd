"""The versions of a dataset: what the store has of them, and which one is loaded."""

from __future__ import annotations

import re
import warnings
from typing import TYPE_CHECKING, Any

from entrepot_io.keys import kedro_key, object_name
from entrepot_io.usage_hints import UsageHints
from entrepot_io.values import key_exists, put_value

from entrepot_kedro.compat.versions import VersionNotFoundError, VersionsInStore
from entrepot_kedro.values.stored_dataset import StoredDataset

if TYPE_CHECKING:
    from entrepot import Store
    from entrepot_io.reference import Reference


class VersionedStoredDataset(VersionsInStore, StoredDataset):
    """A dataset in the store that may have versions, of which the latest one has the dataset's own name as well."""

    def resolve_load_version(self) -> str | None:
        """Return the version that a load reads; None: the dataset has no versions.

        It is the one that the catalog asks for, else the one that this run has saved, else the latest.

        Raises:
            VersionNotFoundError: no version has been saved.
        """
        version = self.requested_version
        if version is None:
            return None
        if version.load:
            return str(version.load)
        store, own = self.store(), self.resolve_save_version()
        if key_exists(store, kedro_key(self.name, own)):  # even if another run has saved a later one since
            return own
        return self._existing_versions(store)[0]

    def list_versions(self, full_path: bool = True) -> list[str]:
        """Return the versions that the store has, the latest first.

        Args:
            full_path: return their names in the store rather than the versions alone.

        Raises:
            VersionNotFoundError: it has none.
        """
        versions = self._existing_versions(self.store())
        return [object_name(kedro_key(self.name, version)) for version in versions] if full_path else versions

    @property
    def is_versioned(self) -> bool:
        """Whether each run saves a version of its own."""
        return self.requested_version is not None

    def write_version(self, store: Store, version: str, data: Any, usage_hints: UsageHints | None) -> Reference:
        """Write a version; warn if later runs will not load it.

        Args:
            store: the session of versions.
            version: the version.
            data: its value.
            usage_hints: the locality set that it belongs to.

        Raises:
            ObjectExists: the version has another value.
        """
        reference = put_value(store, kedro_key(self.name, version), data, replace=False, usage_hints=usage_hints)
        latest = max([version, *_stored_versions(store, self.name)])
        if latest == version:
            store.set_name(object_name(kedro_key(self.name)), reference.id, replace=True)
        else:
            warnings.warn(
                f"save version {version!r} of dataset {self.name!r} is not its latest version, {latest!r}, which later "
                "runs load: versions are compared as text",
                stacklevel=2,
            )
        return reference

    def _existing_versions(self, store: Store) -> list[str]:
        versions = _stored_versions(store, self.name)
        if not versions:
            raise VersionNotFoundError(
                f"no version of dataset {self.name!r} has been saved in scope {store.scope!r} of the store at "
                f"{store.address}"
            )
        return versions


def _stored_versions(store: Store, name: str) -> list[str]:
    """Return the versions of a dataset in the store, the latest first; none of one whose name the store shortens."""
    prefix = kedro_key(name, "")
    if object_name(prefix) != prefix:
        return []
    pattern = re.sub(r"[*?\[]", lambda match: f"[{match[0]}]", prefix) + "*"
    names = {bound for info in store.list(pattern) for bound in info.names}
    return sorted((bound.removeprefix(prefix) for bound in names if bound.startswith(prefix)), reverse=True)
