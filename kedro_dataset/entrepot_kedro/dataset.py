"""The dataset: saved to and loaded from the store, under its name, by every runner.

It holds its settings only, so it is picklable and may be used by any number of threads and processes; each process has
one connection.

The life of its value::

    (absent) --save--> (stored) --load--> (stored)
                          |
                          +-- release after the last consumer: (absent), if the value belongs to the run alone
                          +-- end of the run's session: (absent)

``load`` of what is absent is an error, never an empty value.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, cast

from entrepot.codec import CopyMode
from entrepot.errors import InvalidArgument, ObjectNotFound
from entrepot_io.connections import session_store
from entrepot_io.handoff import delete_by_key, get_by_key, key_exists, put_value
from entrepot_io.keys import kedro_key, object_name
from entrepot_io.sessions import SCOPE_SESSION
from entrepot_io.settings import resolve
from kedro.io import AbstractDataset
from kedro.io.core import Version

from entrepot_kedro.origin import find_origin
from entrepot_kedro.places import Session, default_scope, session_of

if TYPE_CHECKING:
    from entrepot import Store


class EntrepotDataset(AbstractDataset[Any, Any]):
    """A dataset in the store.

    Args:
        name: of the dataset; a catalog gives it by itself.
        address: of the store; unset: ``ENTREPOT_ADDRESS``, then the user's private store.
        scope: of the project; unset: ``ENTREPOT_SCOPE``, then from the project's folder.
        session: where the value lives; unset: the run's own session. ``""`` is the scope's own session, which outlives
            runs; any other name is shared by all who give it.
        copy: how it is loaded: ``"never"`` (a read-only view), ``"on_write"`` or ``"always"``; unset:
            ``ENTREPOT_COPY``, then ``"never"``.
        session_ttl: seconds (or ``"24h"``) that the session lives after its last use; unset: ``ENTREPOT_SESSION_TTL``,
            then 24 hours.
        version: given by a catalog for ``versioned: true``. Versions outlive runs.
        metadata: anything; for other tools.

    Raises:
        InvalidArgument: there is no name and no catalog to give one, or an argument is out of its range.
    """

    def __init__(
        self,
        *,
        name: str | None = None,
        address: str | None = None,
        scope: str | None = None,
        session: str | None = None,
        copy: str | None = None,
        session_ttl: float | str | None = None,
        version: Version | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        origin = find_origin(self, sys._getframe())
        if name is None:
            if origin is None:
                raise InvalidArgument(
                    "an EntrepotDataset that is not made by a catalog entry of its own has no name: give it one, "
                    'EntrepotDataset(name="..."), or in a catalog pattern name: "{name}"'
                )
            name = origin.name
        if not name:
            raise InvalidArgument("the name of a dataset is not empty")
        if version is not None and session is not None:
            raise InvalidArgument(
                f"dataset {name!r} is versioned, and versions outlive runs: leave its session {session!r} away"
            )
        settings = resolve(address=address, scope=scope, session_ttl=session_ttl, copy=copy)
        self.metadata = metadata
        self._name = name
        self._address = settings.address
        self._scope = settings.scope or default_scope()
        self._copy_mode: CopyMode = settings.copy
        self._session_ttl = settings.session_ttl
        self._load_version = None if version is None else cast("str | None", version.load)
        self._save_version = None if version is None else cast("str | None", version.save)
        if version is None:
            self._session = session_of(session, None if origin is None else origin.save_version)
        else:
            self._session = Session(SCOPE_SESSION, ends_with_run=False)
        # Kedro resumes a failed run from what this says is still there for the next one.
        self._EPHEMERAL = self._session.ends_with_run

    def load(self) -> Any:
        """The value, of the type that was saved; read-only unless ``copy`` says otherwise.

        Raises:
            DatasetError: with the cause: ``ObjectNotFound`` or ``ObjectLost`` for a value that is not there,
                ``StoreUnavailable`` if the store cannot be reached.
        """
        store = self._store()
        key = self._load_key(store)
        if key is None:
            return store.get_by_name(object_name(kedro_key(self._name)), copy=self._copy_mode)
        return get_by_key(store, key, copy=self._copy_mode)

    def save(self, data: Any) -> None:
        """Save a value; what an earlier attempt saved gives way, except for a version, which is written once.

        Raises:
            DatasetError: with the cause: ``StoreFull``, ``UnsupportedType``, ``ObjectExists`` (another value has this
                version), ``StoreUnavailable``.
        """
        store = self._store()
        if self._save_version is None:
            put_value(store, kedro_key(self._name), data)
            return
        reference = put_value(store, kedro_key(self._name, self._save_version), data, replace=False)
        store.set_name(object_name(kedro_key(self._name)), reference.id, replace=True)  # the latest version

    def _exists(self) -> bool:
        store = self._store()
        key = self._load_key(store)
        if key is not None:
            return key_exists(store, key)
        try:
            return store.exists(store.resolve(object_name(kedro_key(self._name))))
        except ObjectNotFound:
            return False

    def _release(self) -> None:
        # The runner calls this after the last consumer, in its own process, and never for outputs of the pipeline.
        if self._session.ends_with_run:
            delete_by_key(self._store(), kedro_key(self._name))

    def _describe(self) -> dict[str, Any]:
        return {
            "name": self._name,
            "scope": self._scope,
            "session": self._session.name,
            "address": self._address,
            "copy": self._copy_mode,
            "load_version": self._load_version,
            "save_version": self._save_version,
        }

    def _store(self) -> Store:
        return session_store(self._address, self._scope, self._session.name, self._session_ttl)

    def _load_key(self, store: Store) -> str | None:
        """The key to load from; ``None`` for a versioned dataset's latest version, which an alias names."""
        if self._load_version is not None or self._save_version is None:
            return kedro_key(self._name, self._load_version)
        own = kedro_key(self._name, self._save_version)  # what this run saved, even if another run saved later
        return own if key_exists(store, own) else None
