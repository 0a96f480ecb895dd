"""The dataset: saved to and loaded from the store, under its name, by every runner.

It holds its settings only, so it is picklable and may be used by any number of threads and processes; each process has
one connection.

The life of its value::

    (absent) --save--> (stored) --load--> (stored)
                          |
                          +-- release after the last consumer: (absent), if the value belongs to the run alone
                          +-- end of the run's session: (absent)

``load`` of what is absent is an error, never an empty value. What nothing can write down (a closure, a generator, a
connection) stays in its process, if it belongs to the run alone, as in Kedro's own ``MemoryDataset``.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from entrepot.codec import CopyMode
from entrepot.errors import InvalidArgument, ObjectNotFound, UnsupportedType
from entrepot.ids import ObjectID
from entrepot_io.connections import session_store
from entrepot_io.handoff import delete_by_key, get_by_key, key_exists, put_value
from entrepot_io.keys import kedro_key, object_name
from entrepot_io.sessions import SCOPE_SESSION
from entrepot_io.settings import resolve
from entrepot_io.use import set_use
from kedro.io import AbstractDataset
from kedro.io.core import Version

from entrepot_kedro import ending, policies
from entrepot_kedro.origin import find_origin
from entrepot_kedro.places import PROCESS_SESSION, Session, default_scope, session_of
from entrepot_kedro.transcoding import as_form, form_of, plain_name

if TYPE_CHECKING:
    from entrepot import Store
    from entrepot_io.policy.lineage import ObjectRef
    from entrepot_io.reference import Reference


class _Nothing:
    """No value, in any process."""

    def __reduce__(self) -> str:
        return "_NOTHING"


_NOTHING = _Nothing()


@dataclass(frozen=True)
class RunNote:
    """What a dataset knows of the run that it serves, where a policy is set; it goes with it to other processes.

    Attributes:
        run: ID of ``kedro run``'s session.
        pipelines: names of the pipelines that were asked for.
        made: whether a node of this run makes it.
        package: of the project; None: there is none.
    """

    run: str
    pipelines: tuple[str, ...]
    made: bool
    package: str | None


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
        locality_set: name of the locality set that its value belongs to, or a mapping of ``name`` and attributes, as in
            ``reading: loop_sequential``; unset: the session's own.
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
        locality_set: str | dict[str, Any] | None = None,
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
        self.run_note: RunNote | None = None
        self._used = set_use(locality_set)
        self._name = plain_name(name)
        self._form = form_of(name)
        self._process = os.getpid()
        self._kept: Any = _NOTHING  # a value that cannot be stored; of this process alone
        self.address = settings.address
        self.scope = settings.scope or default_scope()
        self.copy_mode: CopyMode = settings.copy
        self._session_ttl = settings.session_ttl
        self._load_version = None if version is None else cast("str | None", version.load)
        self._save_version = None if version is None else cast("str | None", version.save)
        if version is None:
            self._session = session_of(session, None if origin is None else origin.save_version)
        else:
            self._session = Session(SCOPE_SESSION, ends_with_run=False)
        if self._session.name == PROCESS_SESSION:
            ending.watch_process(self.address, self.scope)
        # Kedro resumes a failed run from what this says is still there for the next one.
        self._EPHEMERAL = self._session.ends_with_run

    def load(self) -> Any:
        """The value, of the type that was saved; read-only unless ``copy`` says otherwise.

        Raises:
            DatasetError: with the cause: ``ObjectNotFound`` or ``ObjectLost`` for a value that is not there,
                ``StoreUnavailable`` if the store cannot be reached.
        """
        if self._kept is not _NOTHING:
            return self._kept
        binding = policies.current()
        value = self.read_now() if binding is None else binding.load(self)
        return as_form(value, self._form) if self._form else value

    def save(self, data: Any) -> None:
        """Save a value; what an earlier attempt saved gives way, except for a version, which is written once.

        Raises:
            DatasetError: with the cause: ``StoreFull``, ``UnsupportedType``, ``ObjectExists`` (another value has this
                version), ``StoreUnavailable``.
        """
        self._kept = _NOTHING
        binding = policies.current()
        try:
            if binding is None:
                self.write_now(data)
            else:
                binding.save(self, data)
        except UnsupportedType:
            if not self._session.ends_with_run or os.getpid() != self._process:
                raise
            self.drop()  # an earlier attempt's value gives way
            self._kept = data

    def _exists(self) -> bool:
        if self._kept is not _NOTHING:
            return True
        store = self.store()
        key = self._load_key(store)
        if key is not None:
            binding = policies.current()
            return key_exists(store, key) if binding is None else binding.survives(self, key)
        try:
            return store.exists(store.resolve(object_name(kedro_key(self._name))))
        except ObjectNotFound:
            return False

    def _release(self) -> None:
        # The runner calls this after the last consumer, in its own process, and never for outputs of the pipeline.
        # Under a policy the value may be needed to make another one again: it goes at the end of the run. So does one
        # of a transcoded name, which is read under others.
        self._kept = _NOTHING
        if self._session.ends_with_run and self.run_note is None and not self._form:
            self.drop()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_kept": _NOTHING}

    # --- without a policy, and for what carries one out

    def read_now(self, key: str | None = None) -> Any:
        """The value that is in the store now.

        Args:
            key: of the value; None: what a load gives, of a version that may be another run's.
        """
        store = self.store()
        key = key or self._load_key(store)
        if key is None:
            return store.get_by_name(object_name(kedro_key(self._name)), copy=self.copy_mode)
        return get_by_key(store, key, copy=self.copy_mode)

    def write_now(self, data: Any) -> Reference:
        """Write a value, and say where it is."""
        store = self.store()
        if self._save_version is None:
            return put_value(store, kedro_key(self._name), data, used=self._used)
        reference = put_value(store, kedro_key(self._name, self._save_version), data, replace=False, used=self._used)
        store.set_name(object_name(kedro_key(self._name)), reference.id, replace=True)  # the latest version
        return reference

    def drop(self) -> None:
        """Delete the value; readers that hold it keep it."""
        delete_by_key(self.store(), kedro_key(self._name))

    def store(self) -> Store:
        """The session that the value lives in."""
        return session_store(self.address, self.scope, self._session.name, self._session_ttl)

    def reference(self, key: str | None = None) -> ObjectRef:
        """A value of this dataset, as lineage names it; it takes no store to know.

        Args:
            key: of the value; None: of what this run saves.
        """
        from entrepot_io.policy.lineage import ObjectRef

        key = key or kedro_key(self._name, self._save_version)
        return ObjectRef(self._session.name, ObjectID.derive(self.scope, self._session.name, key), key)

    def wanted_key(self) -> str | None:
        """The key of what a load wants; None: a version that only the store can tell."""
        if self._load_version is not None or self._save_version is None:
            return kedro_key(self._name, self._load_version)
        if self.run_note is not None and self.run_note.made:
            return kedro_key(self._name, self._save_version)
        return None

    @property
    def name(self) -> str:
        """Its name, from which its key follows."""
        return self._name

    @property
    def session(self) -> Session:
        """Where the value lives."""
        return self._session

    @property
    def is_versioned(self) -> bool:
        """Whether each run saves a version of its own."""
        return self._save_version is not None

    def resume(self, session: str) -> None:
        """Go on in the session of an earlier run, if the value belongs to a run alone."""
        if self._session.ends_with_run:
            self._session = Session(session, ends_with_run=True)

    def expect(self, survives: bool) -> None:
        """Tell Kedro whether its value is there, so that ``--only-missing-outputs`` runs no node without need."""
        self._EPHEMERAL = not survives

    def _describe(self) -> dict[str, Any]:
        return {
            "name": self._name,
            "scope": self.scope,
            "session": self._session.name,
            "address": self.address,
            "copy": self.copy_mode,
            "locality_set": None if self._used is None else self._used.name,
            "load_version": self._load_version,
            "save_version": self._save_version,
        }

    def _load_key(self, store: Store) -> str | None:
        """The key to load from; ``None`` for a versioned dataset's latest version, which an alias names."""
        if self._load_version is not None or self._save_version is None:
            return kedro_key(self._name, self._load_version)
        own = kedro_key(self._name, self._save_version)  # what this run saved, even if another run saved later
        return own if key_exists(store, own) else None
