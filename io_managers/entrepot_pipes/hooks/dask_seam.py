"""Dask: what comes out of a pipe is read once, by pandas, and then cut into partitions.

Dask reads a file's beginning, and then each partition where and whenever it is computed. A pipe is read only once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import wrapt

from entrepot_pipes.hooks.calls import Call

_PARTITION_BYTES = 64 << 20  # Dask's own size, which it makes smaller where there is little memory
# They say how a file is looked at before it is read.
_SAMPLING = ("sample", "sample_rows", "enforce", "compression", "storage_options")
_REFUSED = {
    "assume_missing": "give dtype= for the columns that may have missing values",
    "include_path_column": "a pipe has no path",
    "lineterminator": "all ends of lines are understood",
}


def install(module: Any) -> None:
    """Wrap the functions of ``dask.dataframe``, once it has been imported."""

    def read_csv(wrapped: Callable[..., Any], instance: Any, args: Any, kwargs: Any) -> Any:
        return _read_csv(module, Call(wrapped, "urlpath", args, kwargs), args, kwargs)

    wrapt.wrap_function_wrapper(module, "read_csv", read_csv)


def _read_csv(module: Any, call: Call, args: Any, kwargs: Any) -> Any:
    if call.target is None:
        return call.ordinary()
    import pandas as pd
    from dask.utils import parse_bytes

    options = {name: value for name, value in kwargs.items() if name != "urlpath"}
    if len(args) > 1:
        options["blocksize"] = args[1]
    if len(args) > 2:
        raise call.refuse("give the options that follow blocksize by their names")
    for option, instead in _REFUSED.items():
        if options.pop(option, None):
            raise call.refuse(f"{option} is not supported: {instead}")
    for option in _SAMPLING:
        options.pop(option, None)
    size = options.pop("blocksize", "default")
    frame = pd.read_csv(call.name, **options)  # whose hook takes columns where it can
    if size is None:
        return module.from_pandas(frame, npartitions=1, sort=False)
    limit = max(1, parse_bytes(_PARTITION_BYTES if size == "default" else size))
    parts = -(-int(frame.memory_usage(index=False, deep=True).sum()) // limit)
    return module.from_pandas(frame, npartitions=max(1, parts), sort=False)
