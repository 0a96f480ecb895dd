"""Path by which pickled collections name the function that restores them."""

from __future__ import annotations

from entrepot._collections.collection import _unpickled as _unpickled  # pyright: ignore[reportPrivateUsage]
