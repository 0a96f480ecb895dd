"""One environment of the matrix: stores its values in the store, and reads others' values, as it is told.

Usage: ``matrix_worker.py ADDRESS NAME``. Reads one JSON command a line and answers each with one line:

``"put"``: put every value that can be made here; the answer maps their names to descriptions.
``{"get": [[writer, name], ...]}``: read them; the answer is a list of ``{"value": description}`` or ``{"error": ...}``.
``"versions"``: the versions of the packages here, None for one that is not installed.
"""

from __future__ import annotations

import json
import sys
import traceback
import warnings
from typing import Any

import entrepot
import matrix_pandas_values  # noqa: F401  (adds its builders)
import matrix_polars_values  # noqa: F401  (the same)
from matrix_descriptions import describe
from matrix_values import BUILDERS, buildable, installed_version

PACKAGES = ("numpy", "pandas", "polars", "pyarrow", "pytz")


def object_name(writer: str, name: str) -> str:
    """The name of an object in the store."""
    return f"{writer}/{name}"


def _put(store: entrepot.Store, writer: str) -> dict[str, Any]:
    described: dict[str, Any] = {}
    for name, builder in BUILDERS.items():
        if buildable(builder):
            value = builder.build()
            store.put(value, name=object_name(writer, name))
            described[name] = describe(value)
    return described


def _get(store: entrepot.Store, writer: str, name: str) -> dict[str, Any]:
    try:
        value = store.get(store.resolve(object_name(writer, name)))
    except Exception as error:  # what it is, the test judges
        return {
            "error": {
                "type": type(error).__name__,
                "ours": isinstance(error, entrepot.EntrepotError),
                "message": str(error),
                "trace": traceback.format_exc(),
            }
        }
    return {"value": describe(value)}


def main() -> None:
    """Serve until the input ends."""
    address, writer = sys.argv[1:]
    warnings.simplefilter("ignore", DeprecationWarning)
    warnings.simplefilter("ignore", FutureWarning)
    with entrepot.connect(address) as store:
        for line in sys.stdin:
            command = json.loads(line)
            answer: Any
            if command == "put":
                answer = _put(store, writer)
            elif command == "versions":
                answer = {package: installed_version(package) for package in PACKAGES}
            else:
                answer = [_get(store, *which) for which in command["get"]]
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
