"""To a collection and back, whatever the library."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_args

from entrepot import connect
from entrepot.errors import InvalidArgument, ObjectExists, ObjectNotFound, UnsupportedType

from entrepot_frames.interchange.access import StoreAccess, is_table

if TYPE_CHECKING:
    from entrepot import Collection, Store

Kind = Literal["dask.dataframe", "dask.array", "ray.data"]
DEFAULT_TIMEOUT = 600.0


def to_collection(
    data: Any, name: str, *, store: Store | None = None, replace: bool = False, timeout: float = DEFAULT_TIMEOUT
) -> Collection:
    """Compute a Dask DataFrame, Dask array or Ray Data set, and store it: each partition by the worker that has it.

        to_collection(orders[orders.price > 1], "orders")
        store.get_by_name("orders").to_polars()  # in any other program

    Args:
        data: what is stored. A partition of a Dask DataFrame becomes one member (a pandas frame, with its index unless
            that counts rows), a chunk of an array one tensor, a block of Ray Data one Arrow table. Arrays are chunked
            anew if they are divided along another axis than the first.
        name: of the collection, in the session of ``store``.
        store: default: ``entrepot.connect()``. Workers connect to its address, so they have to be on its host.
        replace: whether a collection of this name may be replaced; it is discarded first.
        timeout: seconds to wait for members that other processes have put, when it is sealed.

    Raises:
        UnsupportedType: ``data`` is none of these.
        InvalidArgument: partitions differ in their columns or types.
        ObjectExists: the name is taken, and ``replace`` is False.
        StoreUnavailable: a worker does not reach the store.
    """
    put_all = _putting(data)
    with connect() if store is None else connect(store.address, scope=store.scope, session=store.session_name) as own:
        if not replace and _is_taken(own, name):
            raise ObjectExists(
                f"the name {name!r} is taken in session {own.session_name!r}: use another one, or pass replace=True"
            )
        builder = own.collection(name)
        builder.discard()  # also what an attempt that was killed has left
        access = StoreAccess.begin(own)
        try:
            collection = builder.seal(put_all(data, name, access), timeout=timeout)
        except BaseException:
            access.end(own)
            builder.discard()
            raise
        access.end(own)
        return collection


def from_collection(collection: Collection | str, kind: Kind, *, store: Store | None = None) -> Any:
    """A stored collection as a Dask DataFrame, a Dask array or a Ray Data set.

    Nothing is read until a partition is computed; its worker then maps the member, which for Dask copies nothing where
    the codec does not. Ray copies blocks into its own object store.

    Args:
        collection: what ``store.get`` or ``store.get_by_name`` returns, or a name.
        kind: ``"dask.dataframe"`` or ``"ray.data"`` of tables, ``"dask.array"`` or ``"ray.data"`` of tensors: these are
            the column ``data`` there.
        store: where a name is looked up; default: ``entrepot.connect()``.

    Returns:
        with one partition or chunk for each member, in their order. Divisions of a Dask DataFrame are not known.

    Raises:
        InvalidArgument: an unknown kind, or one that does not suit the members.
        ObjectNotFound: there is no such name.
    """
    if kind not in get_args(Kind):
        raise InvalidArgument(f"kind={kind!r} is unknown: use one of {', '.join(map(repr, get_args(Kind)))}")
    members = _look_up(collection, store) if isinstance(collection, str) else collection
    if kind == "ray.data":
        from entrepot_frames.interchange import ray_data

        return ray_data.read(members)
    from entrepot_frames.interchange import dask_data

    if is_table(members) != (kind == "dask.dataframe"):
        raise InvalidArgument(
            f"the collection has members of type {members.type}, which are "
            f"{'tables' if is_table(members) else 'not tables'}: kind={kind!r} does not suit them"
        )
    return dask_data.read_frame(members) if kind == "dask.dataframe" else dask_data.read_array(members)


def _putting(data: Any) -> Any:
    library, _, rest = type(data).__module__.partition(".")
    if library == "dask":
        from entrepot_frames.interchange import dask_data

        if rest.startswith("array"):
            return dask_data.put_array
        if rest.startswith("dataframe") and hasattr(data, "columns"):
            return dask_data.put_frame
    if library == "ray" and rest.startswith("data"):
        from entrepot_frames.interchange import ray_data

        return ray_data.put
    raise UnsupportedType(
        f"to_collection takes a Dask DataFrame, a Dask array or a Ray Data set, not {type(data).__name__}; values of "
        "this program itself are put by store.collection(name).put(value, index=...)"
    )


def _is_taken(store: Store, name: str) -> bool:
    try:
        store.resolve(name)
    except ObjectNotFound:
        return False
    return True


def _look_up(name: str, store: Store | None) -> Any:
    if store is not None:
        return store.get_by_name(name)
    with connect() as own:
        return own.get_by_name(name)
