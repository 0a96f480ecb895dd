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
class SetUse:
    """A locality set by name, with attributes to set.

    Attributes:
        name: of the set, in the session of the value; created if missing.
        attributes: as for ``Store.locality_set``; omitted ones stay unchanged.
    """

    name: str
    attributes: dict[str, Any] = field(default_factory=dict[str, Any])

    def in_session(self, store: Store) -> LocalitySet:
        """Create or update the set in a session.

        Raises:
            InvalidArgument: an attribute has a value of the wrong kind.
            StoreUnavailable: the store cannot be reached.
        """
        return store.locality_set(self.name, **self.attributes)


def set_use(wanted: object) -> SetUse | None:
    """Parse a user's setting.

    Args:
        wanted: a name, a mapping with ``name`` and attributes, or ``None``.

    Raises:
        InvalidArgument: it is none of these, or an attribute does not exist.
    """
    if wanted is None:
        return None
    if isinstance(wanted, str):
        return SetUse(wanted)
    if not isinstance(wanted, Mapping):
        raise InvalidArgument(f"a locality set is a name, or a mapping with one, not {wanted!r}")
    said = {str(key): value for key, value in cast("Mapping[object, Any]", wanted).items()}
    name = said.pop("name", None)
    if not isinstance(name, str):
        raise InvalidArgument(f"a locality set has a name, but {wanted!r} has none")
    for key in said:
        if key not in ATTRIBUTES:
            raise InvalidArgument(f"a locality set has {', '.join(ATTRIBUTES)}, and no {key!r}")
    return SetUse(name, said)
