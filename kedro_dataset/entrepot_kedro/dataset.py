"""The Kedro dataset: saved to and loaded from the store, under its name, by every runner.

It holds only its settings, so it can be pickled and used by any number of threads and processes; each process has one
connection.

States of its value::

    (absent) --save--> (stored) --load--> (stored)
                          |
                          +-- release after the last consumer: (absent), if the value belongs to this run only
                          +-- end of the run's session: (absent)

``load`` of an absent value is an error, never an empty value. A value that cannot be serialized (a closure, a
generator, a connection) stays in its process, if it belongs to this run only, as in Kedro's own ``MemoryDataset``.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NewType

from entrepot.codec import CopyMode
from entrepot.errors import (
    EntrepotError,
    InvalidArgument,
    ObjectNotFound,
    StoreUnavailable,
    Timeout,
    UnsupportedType,
)
from entrepot.ids import ObjectID
from entrepot_io.connections import session_store
from entrepot_io.keys import kedro_key, object_name
from entrepot_io.own_values import copy_mode_of, protect
from entrepot_io.sessions import SCOPE_SESSION
from entrepot_io.settings import resolve
from entrepot_io.usage_hints import parse_usage_hints
from entrepot_io.values import delete_by_key, get_by_key, key_exists, put_value
from kedro.io import Version

from entrepot_kedro import worker_process
from entrepot_kedro.compat.datasets import EphemeralByState
from entrepot_kedro.compat.versions import VersionNotFoundError
from entrepot_kedro.log import logger
from entrepot_kedro.policy import policy_registry
from entrepot_kedro.run_owner import RunOwner
from entrepot_kedro.values.arguments import check_name, check_texts, check_version
from entrepot_kedro.values.copying import copying_of
from entrepot_kedro.values.credentials import parse_credentials
from entrepot_kedro.values.missing import lost_with_previous_store, not_kept
from entrepot_kedro.values.no_value import NO_VALUE
from entrepot_kedro.values.previews import preview_of
from entrepot_kedro.values.process_session import add_own_session, hold_process_session, register_own_session
from entrepot_kedro.values.sessions import Session, default_scope, session_of
from entrepot_kedro.values.stored_dataset import RunInfo
from entrepot_kedro.values.stored_versions import VersionedStoredDataset
from entrepot_kedro.values.table_arguments import parse_table_arguments
from entrepot_kedro.values.transcoding import convert_to_form, form_of, plain_name

if TYPE_CHECKING:
    from entrepot import Store
    from entrepot_io.reference import Reference
    from entrepot_policy.state.lineage import ObjectRef


class EntrepotDataset(EphemeralByState, VersionedStoredDataset):
    """A dataset in the store.

    In the catalog of a Kedro project, its entry or pattern gives it its name, by the plugin's hook:

    ```yaml
    features:
      type: entrepot_kedro.EntrepotDataset
      load_args:
        as: polars
        columns: [customer, price]

    orders:
      type: entrepot_kedro.EntrepotDataset
      save_args:
        as: arrow

    model:
      type: entrepot_kedro.EntrepotDataset
      versioned: true

    "{namespace}.{name}":
      type: entrepot_kedro.EntrepotDataset
      copy_mode: assign
    ```

    In Python it needs one (for the configuration of a whole catalog, see :func:`entrepot_kedro.catalog_config`):

    ```python
    import pandas as pd
    from entrepot_kedro import EntrepotDataset

    prices = pd.DataFrame({"customer": ["a", "b"], "price": [1.5, 2.0]})
    dataset = EntrepotDataset(name="prices", load_args={"columns": ["price"]})
    dataset.save(prices)
    assert dataset.load().equals(prices[["price"]])
    assert dataset.exists()
    dataset.release()
    assert not dataset.exists()
    ```

    Args:
        name: name of the dataset; supplied by a project's catalog. Without one, it gets that of the catalog in which a
            run uses it, and cannot be used before.
        address: address of the store; unset: ``ENTREPOT_ADDRESS``, then the user's private store.
        scope: scope of the project; unset: ``ENTREPOT_SCOPE``, then derived from the project's directory.
        session: session of the value; unset: the run's own session. ``""`` is the scope's own session, which outlives
            runs; any other name is shared by all datasets that use it.
        copy: how values are loaded: ``"never"`` (a read-only view), ``"on_write"`` or ``"always"``; unset:
            ``ENTREPOT_COPY``, then as a value of the node's own, which is copied only where the node modifies it.
        copy_mode: the same in the terms of ``MemoryDataset``: ``"assign"`` for ``"never"``, ``"copy"`` for
            ``"on_write"``, ``"deepcopy"`` for ``"always"``.
        session_ttl: seconds (or ``"24h"``) that the session lives after its last use; unset: ``ENTREPOT_SESSION_TTL``,
            then 24 hours.
        locality_set: name of the value's locality set, or a mapping of ``name`` and attributes, such as
            ``reading: loop_sequential``; unset: the session's default set.
        load_args: ``as``, the form in which a table or array is loaded, whatever was saved (``pandas``, ``polars``,
            ``polars.lazy``, ``arrow``, ``arrow.reader`` or ``numpy``), and ``columns``, a list of a table's columns.
        save_args: the same for what is stored, whatever a node returns: ``as`` (``pandas``, ``polars``, ``arrow`` or
            ``numpy``) and ``columns``.
        credentials: storage options of ``ENTREPOT_DURABLE``, where values are also written: what fsspec's driver takes,
            such as ``key`` and ``secret``; in a catalog, a name in ``credentials.yml``.
        run_id: ID of the run whose session the value belongs to, if no session is set; supplied by a run or by
            ``catalog_config``. Unset: the value belongs to this process.
        version: supplied by a catalog for ``versioned: true``. Versions outlive runs.
        metadata: anything, for other tools.

    Raises:
        InvalidArgument: an argument is out of range.

    >>> features = EntrepotDataset(name="features")
    >>> features.save({"rates": [1.0, 1.5]})
    >>> features.load()
    {'rates': [1.0, 1.5]}
    """

    def __init__(
        self,
        *,
        name: str | None = None,
        address: str | None = None,
        scope: str | None = None,
        session: str | None = None,
        copy: str | None = None,
        copy_mode: str | None = None,
        session_ttl: float | str | None = None,
        locality_set: str | dict[str, Any] | None = None,
        load_args: dict[str, Any] | None = None,
        save_args: dict[str, Any] | None = None,
        credentials: dict[str, Any] | None = None,
        run_id: str | None = None,
        version: Version | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        check_name(name)
        check_texts(address=address, scope=scope, session=session, copy=copy, copy_mode=copy_mode, run_id=run_id)
        check_version(name, version, session)
        copying = copying_of(copy, copy_mode)
        settings = resolve(address=address, scope=scope, session_ttl=session_ttl, copy=copying)
        super().__init__(version)
        self.metadata = metadata
        self.run_info: RunInfo | None = None
        self._locality_set = parse_usage_hints(locality_set)
        self._load_arguments = parse_table_arguments("load_args", load_args)
        self._save_arguments = parse_table_arguments("save_args", save_args)
        self.storage_options = parse_credentials(credentials)
        self._name = None if name is None else plain_name(name)
        self._form = "" if name is None else form_of(name)
        self._owner = RunOwner()
        # The session and the instance in which it was opened, from its first use in the owner's process on. Worker
        # processes do not keep it open: they may outlive a killed run.
        self._held: tuple[str, Store] | None = None
        self._holds_session = True  # False from the end of a run that failed on: another one may go on in its session
        self._memory_value: Any = NO_VALUE  # a value that cannot be stored; exists in this process only
        self.address = settings.address
        self.scope = settings.scope or default_scope()
        self._gives_own_values = copying is None and not os.environ.get("ENTREPOT_COPY")
        self.copy_mode: CopyMode = "on_write" if self._gives_own_values else settings.copy
        self._session_ttl = settings.session_ttl
        if version is None:
            self._session = session_of(session, run_id)
        else:
            self._session = Session(SCOPE_SESSION, ends_with_run=False)
        if self._session.is_of_process:
            add_own_session(self._session.name)
        register_own_session(self.address, self.scope, self._session.name, self.storage_options)
        self._is_in_run = False  # a run has begun with it; travels to the run's workers, as does the next one
        self._run_instance: str | None = None  # the store's instance when the run began, if its session is open
        self._declared_persistent: bool | None = None
        self._can_be_continued = False

    def load(self) -> Any:
        """Return the value, of the type that was saved unless ``load_args`` says otherwise.

        It is the caller's own unless ``copy`` says otherwise: modifying it changes no other reader's.

        Raises:
            DatasetError: caused by ``ObjectNotFound`` or ``ObjectLost`` if the value is missing (a
                ``VersionNotFoundError``, if the dataset has no version at all), by ``UnsupportedType`` or
                ``InvalidArgument`` if it has no such form or columns, or by ``StoreUnavailable`` if the store cannot be
                reached.
        """
        if self._memory_value is not NO_VALUE:
            return self._load_arguments.apply(self._memory_value)
        if self._is_in_run:
            worker_process.note_owner(self._owner)
        binding = policy_registry.active()
        try:
            value = self.read_direct() if binding is None else binding.load(self)
        except ObjectNotFound as error:
            self._check_versions(error)
            if self._session.ends_with_run:
                if self._run_instance is not None:
                    lost_with_previous_store(self.store(), self._run_instance, self.name, error)
                elif not self._is_in_run:
                    not_kept(self.name, self._session.name, error)
            raise
        return self._load_arguments.apply(convert_to_form(value, self._form) if self._form else value)

    def save(self, data: Any) -> None:
        """Save a value. It replaces the value of an earlier attempt, except for versions, which are written once.

        Raises:
            DatasetError: caused by ``StoreFull``, ``UnsupportedType``, ``InvalidArgument`` (it has no such columns),
                ``ObjectExists`` (the version already has another value) or ``StoreUnavailable``; or by ``RunEnded`` in
                a worker process whose run was killed.
        """
        if self._session.ends_with_run or self._is_in_run:
            worker_process.note_owner(self._owner)
            self._owner.check_running(self.name, self._session.name)
        data = self._save_arguments.apply_to_saved(data)
        self._memory_value = NO_VALUE
        binding = policy_registry.active()
        try:
            if binding is None:
                self.write_direct(data)
            else:
                binding.save(self, data)
        except UnsupportedType:
            if not self._session.ends_with_run or not self._owner.is_this_process:
                raise
            self.drop()  # of an earlier attempt's value
            self._memory_value = data

    def preview(self, nrows: int = 5) -> dict[str, Any]:
        """Return schema, sizes and the first rows of a table, or type and sizes of another value, for Kedro-Viz.

        Args:
            nrows: how many rows.

        Returns:
            what Kedro-Viz shows as a table; empty if nothing is stored.

        Raises:
            StoreUnavailable: the store cannot be reached. InvalidArgument: ``nrows`` is no such number.
        """
        if self._memory_value is not NO_VALUE or not self._exists():
            return {}
        store, key = self.store(), self._resolve_load_key()
        oid = store.resolve(object_name(kedro_key(self.name))) if key is None else store.derive(key)
        value = self._load_arguments.select(self.read_direct(key))
        return preview_of(value, store.info(oid).nbytes, nrows)

    # Kedro-Viz looks at the annotation itself, and shows a table for one of this name.
    preview.__annotations__["return"] = NewType("TablePreview", dict)

    def _exists(self) -> bool:
        if self._memory_value is not NO_VALUE:
            return True
        store = self.store()
        key = self._resolve_load_key()
        if key is not None:
            binding = policy_registry.active()
            return key_exists(store, key) if binding is None else binding.survives(self, key)
        try:
            return store.exists(store.resolve(object_name(kedro_key(self.name))))
        except ObjectNotFound:
            return False

    def _release(self) -> None:
        # The runner calls this after the last consumer, in its own process, and never for outputs of the pipeline.
        # Under a policy, the value may be needed to recompute another one, so it is dropped at the end of the run. So
        # is one with a transcoded name, which is read under several names.
        self._memory_value = NO_VALUE
        if self._name is not None and self._session.ends_with_run and self.run_info is None and not self._form:
            try:
                self.drop()
            except (StoreUnavailable, Timeout) as error:  # nobody needs the value, so the run can go on
                logger.warning("Entrepot: cannot release %s; it stays until its session ends: %s", self._name, error)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_memory_value": NO_VALUE, "_held": None}

    # --- direct access without a policy, and accessors for the code that executes one

    def read_direct(self, key: str | None = None) -> Any:
        """Read the value that is in the store now.

        Args:
            key: key of the value; None: what a load returns, possibly a version saved by another run.
        """
        store = self.store()
        key = key or self._resolve_load_key()
        copy = self.copy_mode
        if self._gives_own_values:
            with suppress(ObjectNotFound):  # reported below
                copy = copy_mode_of(
                    store, store.resolve(object_name(kedro_key(self.name))) if key is None else store.derive(key)
                )
        if key is None:
            value = store.get_by_name(object_name(kedro_key(self.name)), copy=copy)
        else:
            value = get_by_key(store, key, copy=copy)
        if self._gives_own_values and copy == "never":
            protect(value)
        return value

    def write_direct(self, data: Any) -> Reference:
        """Write a value; return the reference to it."""
        store, version = self.store(), self.resolve_save_version()
        if version is not None:
            return self.write_version(store, version, data, self._locality_set)
        return put_value(store, kedro_key(self.name), data, usage_hints=self._locality_set)

    def drop(self) -> None:
        """Delete the value; it stays valid for readers that hold it."""
        delete_by_key(self.store(), kedro_key(self.name))

    def store(self) -> Store:
        """Return a store for the value's session."""
        store = session_store(self.address, self.scope, self._session.name, self._session_ttl, self.storage_options)
        if self._session.is_of_process:
            hold_process_session(self.address, self.scope, self._session.name, store)
        elif self._session.ends_with_run and self._holds_session and self._owner.is_this_process:
            instance = store.instance_id
            self._held = self._held if self._held is not None and self._held[0] == instance else (instance, store)
        return store

    def reference(self, key: str | None = None) -> ObjectRef:
        """Return the lineage reference of a value of this dataset; computed without the store.

        Args:
            key: key of the value; None: that of the value saved by this run.
        """
        from entrepot_policy.state.lineage import ObjectRef

        key = key or kedro_key(self.name, self.resolve_save_version())
        return ObjectRef(self._session.name, ObjectID.derive(self.scope, self._session.name, key), key)

    def load_key(self) -> str | None:
        """Return the key that a load reads; None: a version that only the store can tell."""
        version = self.requested_version
        if version is None or version.load:
            return kedro_key(self.name, None if version is None else version.load)
        if self.run_info is not None and self.run_info.is_produced:
            return kedro_key(self.name, self.resolve_save_version())
        return None

    @property
    def name(self) -> str:
        """The dataset's name, from which its key is derived.

        Raises:
            InvalidArgument: nothing has named it.
        """
        if self._name is None:
            raise InvalidArgument(
                'this EntrepotDataset needs a name: pass EntrepotDataset(name="..."), set name in its catalog entry '
                "(in a pattern, with all of its placeholders), or build the catalog from "
                "entrepot_kedro.catalog_config(...). The catalog names it only in sessions with hooks (kedro viz: "
                "--include-hooks), and only in an entry of its own or in a CachedDataset"
            )
        return self._name

    @property
    def session(self) -> Session:
        """The session of the value."""
        return self._session

    def join_run(self, run_id: str, name: str) -> None:
        """Belong to a run, unless a session is set or an earlier run has it; take a name, if there is none."""
        if self._name is None:
            self._name, self._form = plain_name(name), form_of(name)
        if self._session.is_of_process:
            self._session = session_of(None, run_id)
            self._held = None

    def resume_session(self, session: str) -> None:
        """Continue in the session of an earlier run, if the value belongs to one run only."""
        if self._session.ends_with_run:
            self._session = Session(session, ends_with_run=True)
            self._held = None

    def close_session(self) -> None:
        """Close the session, which the dataset has open from its first use in its own process on, and keep it closed.

        What is left of a failed run is still looked at, and in a notebook its datasets live as long as its traceback.
        """
        self._holds_session = False
        if (held := self._held) is not None:
            self._held = None
            held[1].close()

    def outlives_process(self) -> bool:
        """Return whether another process would find the value: it is in the store, and not only in this process."""
        return self._memory_value is NO_VALUE and self.exists()

    def declare_persistent(self, persistent: bool) -> None:
        """Tell Kedro whether the value exists, so that ``--only-missing-outputs`` runs no node unnecessarily."""
        self._declared_persistent = persistent

    def begin_run(self, instance: str | None) -> None:
        """Note that a run begins, in which instance of the store: values are lost if another one takes its place."""
        self._is_in_run, self._run_instance, self._holds_session = True, instance, True

    def declare_continuable(self) -> None:
        """Tell the dataset that its run is in the journal, where the next run looks for values to go on with."""
        self._can_be_continued = True

    def ends_with_its_run(self) -> bool:
        """Return whether the next run has to recompute the value: it belongs to this run, and the store has it not."""
        if self._declared_persistent is not None:
            return not self._declared_persistent
        if not self._session.ends_with_run:
            return False
        if not self._can_be_continued or self._memory_value is not NO_VALUE:
            return True
        try:
            return not self._exists()
        except EntrepotError:  # asked while a run fails, whose own error is the one to report
            return True

    def _describe(self) -> dict[str, Any]:
        version = self.requested_version
        return {
            "name": self._name,
            "scope": self.scope,
            "session": self._session.name,
            "address": self.address,
            "copy": None if self._gives_own_values else self.copy_mode,
            "load_args": self._load_arguments.describe(),
            "save_args": self._save_arguments.describe(),
            "locality_set": None if self._locality_set is None else self._locality_set.name,
            "load_version": None if version is None else version.load,
            "save_version": None if version is None else version.save,
        }

    def _check_versions(self, error: ObjectNotFound) -> None:
        """Say which versions there are if a load has failed; if there is none, by Kedro's own error."""
        if self.is_versioned:
            try:
                wanted = self.resolve_load_version()
            except VersionNotFoundError as missing:
                raise missing from error
            versions: list[str] = []
            with suppress(VersionNotFoundError):  # or those of a name so long that they cannot be listed
                versions = self.list_versions(full_path=False)
            if versions and wanted not in versions:
                raise ObjectNotFound(
                    f"dataset {self.name!r} has no version {wanted!r}; the store has {', '.join(versions[:5])}"
                    f"{' and older ones' if len(versions) > 5 else ''}"
                ) from error

    def _resolve_load_key(self) -> str | None:
        """Return the key to load from; None for a version that is only where the session is durable: an alias tells."""
        try:
            return kedro_key(self.name, self.resolve_load_version())
        except VersionNotFoundError:
            return None
