"""Usage hints of an output, as one line of user configuration: the locality set that eviction assigns it to.

A catalog entry or an output's metadata has a name, or a name with attributes::

    locality_set: features
    locality_set: {name: features, reading: loop_sequential}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from entrepot.errors import InvalidArgument

if TYPE_CHECKING:
    from entrepot import LocalitySet, Store

ATTRIBUTES = ("durability", "reading", "writing", "lifetime", "consumers", "operation", "policy", "priority")


@dataclass(frozen=True)
class UsageHints:
    """A locality set by name, with attributes to set.

    Attributes:
        name: of the set, in the session of the value; created if missing.
        attributes: as for ``Store.locality_set``; omitted ones stay unchanged.
    """

    name: str
    attributes: dict[str, Any] = field(default_factory=dict[str, Any])

    def apply_to(self, store: Store) -> LocalitySet:
        """Create or update the set in a session.

        Raises:
            InvalidArgument: an attribute has a value of the wrong kind.
            StoreUnavailable: the store cannot be reached.
        """
        return store.locality_set(self.name, **self.attributes)


def parse_usage_hints(setting: object) -> UsageHints | None:
    """Parse a user's setting.

    Args:
        setting: a name, a mapping with ``name`` and attributes, or ``None``.

    Raises:
        InvalidArgument: it is none of these, or an attribute does not exist.
    """
    if setting is None:
        return None
    if isinstance(setting, str):
        return UsageHints(setting)
    if not isinstance(setting, Mapping):
        raise InvalidArgument(f"a locality set must be a name, or a mapping with a name, not {setting!r}")
    attributes = {str(key): value for key, value in cast("Mapping[object, Any]", setting).items()}
    name = attributes.pop("name", None)
    if not isinstance(name, str):
        raise InvalidArgument(f"a locality set must have a name, but {setting!r} has none")
    for key in attributes:
        if key not in ATTRIBUTES:
            raise InvalidArgument(f"a locality set has no attribute {key!r}, only {', '.join(ATTRIBUTES)}")
    return UsageHints(name, attributes)
