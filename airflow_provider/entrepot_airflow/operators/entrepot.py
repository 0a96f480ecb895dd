"""Operators that save, restore, evict, export and import objects."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Literal

from airflow.sdk import BaseOperator
from entrepot.errors import InvalidArgument, ObjectNotFound

from entrepot_airflow.hooks.entrepot import EntrepotHook
from entrepot_airflow.operators import transfer
from entrepot_airflow.store_location import RETURN_VALUE, name_of_xcom, session_of_run

if TYPE_CHECKING:
    from entrepot import Store
    from entrepot.ids import ObjectID

SaveFormat = Literal["entrepot", "parquet", "arrow", "csv", "orc", "npy", "h5"]


class _StoreOperator(BaseOperator):
    """What the operators share: which session they work on.

    Args:
        entrepot_conn_id: as for ``EntrepotHook``.
        session: name of the session. Default: that of the DAG run, which has its XComs. Empty: the scope's own.
    """

    template_fields: Collection[str] = ("entrepot_conn_id", "session")
    ui_color = "#e8f1fa"

    def __init__(self, *, entrepot_conn_id: str | None = None, session: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.entrepot_conn_id = entrepot_conn_id
        self.session = session

    def _store(self, context: Any) -> Store:
        session = session_of_run(context) if self.session is None else self.session
        return EntrepotHook(self.entrepot_conn_id, session=session).get_conn()


class _ObjectOperator(_StoreOperator):
    """What operators on one object share: which object.

    Args:
        name: of the object in its session. Or:
        from_task: ID of a task of the same DAG run: the object of its XCom; of the task instance ``from_map_index``, if
            it is mapped, and of the XCom ``key``.
    """

    template_fields = (*_StoreOperator.template_fields, "name", "from_task", "key")

    def __init__(
        self,
        *,
        name: str | None = None,
        from_task: str | None = None,
        key: str = RETURN_VALUE,
        from_map_index: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.name = name
        self.from_task = from_task
        self.key = key
        self.from_map_index = from_map_index

    def _has_object(self) -> bool:
        if self.name is not None and self.from_task is not None:
            raise InvalidArgument(f"name={self.name!r} and from_task={self.from_task!r} exclude each other")
        return self.name is not None or self.from_task is not None

    def _object_name(self, context: Any) -> str:
        if not self._has_object():
            raise InvalidArgument(f"{type(self).__name__} needs an object: name= or from_task=")
        if self.from_task is not None:
            return name_of_xcom(context, self.from_task, key=self.key, map_index=self.from_map_index)
        assert self.name is not None
        return self.name

    def _object(self, store: Store, context: Any) -> ObjectID:
        name = self._object_name(context)
        try:
            return store.resolve(name)
        except ObjectNotFound as error:
            if self.from_task is None:
                raise
            raise ObjectNotFound(
                f"the XCom {self.key!r} of task {self.from_task!r} is not an object of this store: the task has not "
                f"run, or its value is small enough to stay in Airflow's database ([entrepot] inline_below), or it was "
                f"deleted ({error})"
            ) from error


class EntrepotCheckpointOperator(_ObjectOperator):
    """Saves an object, or all of the DAG run's, as a checkpoint: a durable copy outside the store.

    Args:
        url: its directory: a path or any URL of fsspec, such as ``s3://bucket/checkpoints/{{ run_id }}``.
        format: ``entrepot``, which keeps every value exactly, or that of files for other programs; as ``Store.save``.
        storage_options: for fsspec's driver: credentials, endpoints.
        name, from_task, key, from_map_index: the object. Default: the whole session.
        entrepot_conn_id, session: as for ``EntrepotHook``; default session: that of the DAG run.

    Returns:
        the checkpoint's URL.

    Raises:
        what ``Store.save`` raises.
    """

    template_fields = (*_ObjectOperator.template_fields, "url", "storage_options")

    def __init__(
        self,
        *,
        url: str,
        format: SaveFormat = "entrepot",
        storage_options: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.url = url
        self.format: SaveFormat = format
        self.storage_options = storage_options

    def execute(self, context: Any) -> str:
        store = self._store(context)
        what = self._object(store, context) if self._has_object() else store
        report = store.save(what, self.url, format=self.format, storage_options=self.storage_options)
        self.log.info("Entrepot: saved %s: %s", self.url, report)
        return self.url


class EntrepotRestoreOperator(_StoreOperator):
    """Loads a checkpoint into the store, under the names that its objects had.

    Args:
        url: where it was saved.
        replace: whether it may replace other contents under the same IDs and names.
        storage_options: for fsspec's driver.
        entrepot_conn_id, session: as for ``EntrepotHook``; default session: that of the DAG run.

    Returns:
        IDs of the objects.

    Raises:
        what ``Store.load`` raises.
    """

    template_fields = (*_StoreOperator.template_fields, "url", "storage_options")

    def __init__(
        self, *, url: str, replace: bool = False, storage_options: Mapping[str, Any] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.url = url
        self.replace = replace
        self.storage_options = storage_options

    def execute(self, context: Any) -> list[str]:
        loaded = self._store(context).load(self.url, replace=self.replace, storage_options=self.storage_options)
        return [str(oid) for oid in (loaded if isinstance(loaded, list) else [loaded])]


class EntrepotEvictOperator(_ObjectOperator):
    """Moves an object, or all of a session, from memory to disk; a later read loads it again.

    Args:
        name, from_task, key, from_map_index: the object. Default: all objects of the session.
        entrepot_conn_id, session: as for ``EntrepotHook``; default session: that of the DAG run.

    Returns:
        the number of objects.

    Raises:
        what ``Store.evict`` raises.
    """

    def execute(self, context: Any) -> int:
        store = self._store(context)
        if self._has_object():
            ids = [self._object(store, context)]
        else:
            ids = [info.id for info in store.list(session=store.session_name)]
        store.evict(*ids)
        return len(ids)


class EntrepotExportOperator(_ObjectOperator):
    """Writes an object as a file, in the format of the URL's extension.

    Args:
        url: the file: a path or any URL of fsspec that ends in ``.parquet``, ``.arrow``, ``.csv``, ``.orc``, ``.npy``
            or ``.h5``; with another extension, or none, the value has to be bytes or text.
        storage_options: for fsspec's driver.
        name, from_task, key, from_map_index: the object.
        entrepot_conn_id, session: as for ``EntrepotHook``; default session: that of the DAG run.

    Returns:
        the file's URL. If writing fails, there is no file.

    Raises:
        InvalidArgument: no object is given.
        ObjectNotFound: there is none of this name.
        OSError: the object has no such form, or the file cannot be written.
    """

    template_fields = (*_ObjectOperator.template_fields, "url", "storage_options")

    def __init__(self, *, url: str, storage_options: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.url = url
        self.storage_options = storage_options

    def execute(self, context: Any) -> str:
        store = self._store(context)
        self._object(store, context)  # for its error
        nbytes = transfer.export_file(store, self._object_name(context), self.url, self.storage_options)
        self.log.info("Entrepot: wrote %d bytes to %s", nbytes, self.url)
        return self.url


class EntrepotImportOperator(_StoreOperator):
    """Reads a file into the store, in the format of its extension, and returns the value as the task's XCom.

    Args:
        url: the file: a path or any URL of fsspec; extensions as for ``EntrepotExportOperator``.
        name: the name that the object gets in the session, besides that of the XCom.
        storage_options: for fsspec's driver.
        entrepot_conn_id, session: as for ``EntrepotHook``; default session: that of the DAG run.

    Raises:
        FileNotFoundError: there is no such file.
        OSError: it is not what its extension says.
        StoreFull: it does not fit.
    """

    template_fields = (*_StoreOperator.template_fields, "url", "name", "storage_options")

    def __init__(self, *, url: str, name: str, storage_options: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.url = url
        self.name = name
        self.storage_options = storage_options

    def execute(self, context: Any) -> Any:
        store = self._store(context)
        nbytes = transfer.import_file(store, self.name, self.url, self.storage_options)
        self.log.info("Entrepot: read %d bytes from %s", nbytes, self.url)
        return store.get_by_name(self.name)  # its XCom shares the bytes
