"""What sensors and their trigger wait for."""

from __future__ import annotations

from entrepot.errors import InvalidArgument, ObjectNotFound

from entrepot_airflow.store_location import StoreLocation


def is_there(location: StoreLocation, name: str, collection: bool, members: int) -> str | None:
    """Return the ID of a named object, in hexadecimal digits; None: there is none yet.

    Args:
        location: the session.
        name: in it.
        collection: whether it has to be a collection.
        members: how many members that has to have; with fewer, it is as if it was not there.

    Raises:
        InvalidArgument: it is not a collection, and has to be one.
        StoreUnavailable: the store cannot be reached.
    """
    from entrepot import Collection

    store = location.open()
    try:
        oid = store.resolve(name)
        if collection:
            value = store.get(oid)
            if not isinstance(value, Collection):
                raise InvalidArgument(
                    f"{name!r} in session {location.session!r} is a {store.info(oid).type}, not a collection: use "
                    "EntrepotObjectSensor"
                )
            if len(value) < members:
                return None
    except ObjectNotFound:
        return None
    return str(oid)
