"""``credentials`` of a catalog entry: storage options of the place where values are also written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from entrepot.errors import InvalidArgument
from entrepot_io.connections import durable_tier


def parse_credentials(setting: Any) -> dict[str, Any] | None:
    """Return the storage options that credentials are; None: there are none. No message has their values.

    Raises:
        InvalidArgument: they are no mapping of names to values, or there is nothing that they are for.
    """
    if setting is None:
        return None
    if not isinstance(setting, Mapping) or not all(isinstance(name, str) for name in setting):
        raise InvalidArgument(
            f"credentials must be a mapping of storage options, such as key and secret, not {type(setting).__name__}; "
            "in a catalog, the name of such a mapping in credentials.yml"
        )
    options = dict(setting)
    durable_tier(options)  # refuses what would not be used
    return options
