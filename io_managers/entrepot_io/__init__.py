"""Code shared by the orchestrator plugins: codecs, references, keys, sessions, and passing values between tasks.

The plugins (``entrepot_airflow``, ``entrepot_dagster``, ``entrepot_kedro``) are thin layers over this package. It
imports none of its modules here: the core finds the codecs by name and must not pay for the rest. Its one public name
is ``register``, for codecs of the user's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from entrepot.lazy_imports import lazy_names

if TYPE_CHECKING:
    from entrepot._codecs.own_codecs import register as register

__all__ = ["register"]
__getattr__, __dir__ = lazy_names(__name__, {"register": "entrepot._codecs.own_codecs"})
