"""Interface of a dataset in the store; :class:`entrepot_kedro.EntrepotDataset` implements it."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from entrepot.codec import CopyMode

from entrepot_kedro.values.sessions import Session

if TYPE_CHECKING:
    from entrepot import Store
    from entrepot_io.reference import Reference
    from entrepot_policy.state.lineage import ObjectRef


class CatalogLink:
    """A dataset's link to the catalog of its run.

    In the process that has made the catalog it is weak: a dataset that outlives its run does not keep the others. In
    a worker, which gets catalog and datasets in one pickle with the task, it is what that pickle has.

    Args:
        catalog: the catalog.
    """

    def __init__(self, catalog: Any) -> None:
        self._weak: weakref.ref[Any] | None = weakref.ref(catalog)
        self._strong: Any = None

    def catalog(self) -> Any:
        """Return the catalog; None: it is gone."""
        return self._strong if self._weak is None else self._weak()

    def __getstate__(self) -> dict[str, Any]:
        return {"_weak": None, "_strong": self.catalog()}


@dataclass(frozen=True)
class RunInfo:
    """A dataset's run, if a policy is set; travels with the dataset to other processes.

    Attributes:
        run_id: ID of ``kedro run``'s session.
        pipelines: names of the pipelines requested.
        is_produced: whether a node of this run makes the dataset.
        package: the project's package; None: not a Kedro project.
        catalog: catalog of the run.
        credentials: those that the policy's targets name, by name.
    """

    run_id: str
    pipelines: tuple[str, ...]
    is_produced: bool
    package: str | None
    catalog: CatalogLink
    credentials: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False, compare=False)


class StoredDataset(ABC):
    """A dataset in the store.

    Attributes:
        address: address of the store; None: the user's private store.
        scope: scope of the project.
        copy_mode: copy mode for loading.
        storage_options: of the durable tier; None: what its driver finds by itself.
        run_info: the run that the dataset belongs to; None: no policy is set.
    """

    address: str | None
    scope: str
    copy_mode: CopyMode
    storage_options: Mapping[str, Any] | None
    run_info: RunInfo | None

    @property
    @abstractmethod
    def name(self) -> str:
        """The dataset's name, from which its key is derived.

        Raises:
            InvalidArgument: nothing has named it.
        """

    @property
    @abstractmethod
    def session(self) -> Session:
        """The session of the value."""

    @property
    @abstractmethod
    def is_versioned(self) -> bool:
        """Whether each run saves a version of its own."""

    @abstractmethod
    def exists(self) -> bool:
        """Return whether a load would find a value."""

    @abstractmethod
    def outlives_process(self) -> bool:
        """Return whether another process would find the value: it is in the store, and not only in this process."""

    @abstractmethod
    def store(self) -> Store:
        """Return a store for the value's session."""

    @abstractmethod
    def read_direct(self, key: str | None = None) -> Any:
        """Read the value that is in the store now, without a policy.

        Args:
            key: key of the value; None: what a load returns, possibly a version saved by another run.
        """

    @abstractmethod
    def write_direct(self, data: Any) -> Reference:
        """Write a value, without a policy; return the reference to it."""

    @abstractmethod
    def drop(self) -> None:
        """Delete the value; it stays valid for readers that hold it."""

    @abstractmethod
    def reference(self, key: str | None = None) -> ObjectRef:
        """Return the lineage reference of a value of this dataset; computed without the store.

        Args:
            key: key of the value; None: that of the value saved by this run.
        """

    @abstractmethod
    def load_key(self) -> str | None:
        """Return the key that a load reads; None: a version that only the store can tell."""

    @abstractmethod
    def join_run(self, run_id: str, name: str) -> None:
        """Belong to a run, unless a session is set or an earlier run has it; take a name, if there is none."""

    @abstractmethod
    def resume_session(self, session: str) -> None:
        """Continue in the session of an earlier run, if the value belongs to one run only."""

    @abstractmethod
    def close_session(self) -> None:
        """Close the session, which the dataset has open from its first use in its own process on, and keep it closed
        until a run begins."""

    @abstractmethod
    def begin_run(self, instance: str | None) -> None:
        """Note that a run begins, in which instance of the store: values are lost if another one takes its place.

        Args:
            instance: None: the session is not open, as that of what outlives all runs.
        """

    @abstractmethod
    def declare_continuable(self) -> None:
        """Tell the dataset that its run is in the journal, where the next run looks for values to go on with."""

    @abstractmethod
    def declare_persistent(self, persistent: bool) -> None:
        """Tell Kedro whether the value exists, so that ``--only-missing-outputs`` runs no node unnecessarily."""
