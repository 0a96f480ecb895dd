"""Dask DataFrames and Dask arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from entrepot_frames.interchange.access import StoreAccess, member_views

if TYPE_CHECKING:
    import pandas as pd
    from entrepot import Collection


def put_frame(frame: Any, name: str, access: StoreAccess) -> int:
    """Store each partition; return how many there are."""
    return _put_all(frame.to_delayed(), name, access)


def put_array(array: Any, name: str, access: StoreAccess) -> int:
    """Store each chunk along the first axis; return how many there are."""
    whole = array.rechunk(dict.fromkeys(range(1, array.ndim), -1))
    return _put_all(whole.to_delayed().ravel(), name, access)


def read_frame(collection: Collection) -> Any:
    """A Dask DataFrame of one partition for each member."""
    import dask.dataframe

    frames: Any = dask.dataframe  # which has no types
    views = member_views(collection)
    return frames.from_map(_frame_of, views, meta=_frame_of(views[0]).iloc[:0], label="entrepot")


def read_array(collection: Collection) -> Any:
    """A Dask array of one chunk for each member."""
    import dask.array
    from dask.delayed import delayed

    arrays: Any = dask.array  # which has no types
    views = member_views(collection)
    first = collection[0]
    chunks = [
        arrays.from_delayed(delayed(_member_of)(view), (view.rows, *first.shape[1:]), dtype=first.dtype)
        for view in views
    ]
    return arrays.concatenate(chunks)


def _put_all(parts: Any, name: str, access: StoreAccess) -> int:
    import dask.base
    from dask.delayed import delayed

    base: Any = dask.base  # which has no types
    put = delayed(_put, pure=False)
    tasks = [put(part, access, name, index) for index, part in enumerate(parts)]
    base.compute(*tasks)
    return len(tasks)


def _put(part: Any, access: StoreAccess, name: str, index: int) -> None:
    access.put_member(part, name, index)


def _member_of(view: Collection) -> Any:
    return view[0]


def _frame_of(view: Collection) -> pd.DataFrame:
    """A member as pandas has it; strings of Arrow stay Arrow's, and numbers without nulls are views."""
    import pandas as pd
    import pyarrow as pa

    value = view[0]
    if isinstance(value, pd.DataFrame):
        return value
    strings: Any = pd.StringDtype("pyarrow")
    types = {pa.string(): strings, pa.large_string(): strings, pa.string_view(): strings}
    frame: pd.DataFrame = pa.table(value).to_pandas(types_mapper=types.get, split_blocks=True)
    return frame
