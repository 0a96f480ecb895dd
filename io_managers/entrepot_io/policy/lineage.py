"""Lineage: which task made which object from which inputs, kept in the store beside the objects.

A record is a small object in the session of the output, under an ID derived from the output's: whoever has a reference
finds its lineage, without a list or database, even after the writer was killed. Many inputs are split into pages. A
checkpoint of an object contains its lineage, because it is saved with it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from entrepot.errors import CorruptData, InvalidArgument
from entrepot.ids import ObjectID

from entrepot_io.keys import shorten
from entrepot_io.policy import records
from entrepot_io.policy.subject import Subject, Task
from entrepot_io.reference import Reference

if TYPE_CHECKING:
    from entrepot import Store

PREFIX = "entrepot.lineage/"
MAX_INPUTS = 4096
PAGE_BYTES = 8_000  # of inputs, so that a page with everything else always fits in a record
KEY_MAX_BYTES = 120
TEXT_MAX_BYTES = 250
TAG_MAX_BYTES = 100
MAX_TAGS = 16


@dataclass(frozen=True)
class ObjectRef:
    """An object as named in lineage.

    Attributes:
        session: of the scope, that contains it.
        id: its ID.
        key: its logical key, shortened; empty: a random ID.
        instance, generation: which generation of it; an empty instance: any.
    """

    session: str
    id: ObjectID
    key: str = ""
    instance: str = ""
    generation: int = 0

    @classmethod
    def of(cls, reference: Reference) -> ObjectRef:
        """The object that an orchestrator's reference names."""
        return cls(reference.session, reference.id, reference.key or "", reference.instance, reference.generation)

    def __str__(self) -> str:
        return f"{self.key!r} ({self.id})" if self.key else str(self.id)


@dataclass(frozen=True)
class Lineage:
    """How an object was made.

    Attributes:
        output: the object.
        task: what made it.
        inputs: what that task had read until then, each once, in order.
        complete: whether these are all; beyond ``MAX_INPUTS`` they are not.
        seconds: that the task took until it wrote the object.
        created: seconds since 1970.
        checkpointed: whether the policy decided to checkpoint it.
        asset, dataset, tags, type, nbytes: properties of the output that rules match.
    """

    output: ObjectRef
    task: Task
    inputs: tuple[ObjectRef, ...]
    complete: bool
    seconds: float
    created: float
    checkpointed: bool = False
    asset: str = ""
    dataset: str = ""
    tags: tuple[str, ...] = ()
    type: str = ""
    nbytes: int | None = None

    def subject(self) -> Subject:
        """The output, as rules see it."""
        tags = frozenset(self.tags)
        return Subject(self.task, self.output.key, self.asset, self.dataset, tags, self.type, self.nbytes)

    def to_dict(self) -> dict[str, Any]:
        """As JSON, with all inputs."""
        return {**self._head(), "inputs": [_ref_out(one) for one in self.inputs]}

    def _head(self) -> dict[str, Any]:
        task = self.task
        return {
            "object": _ref_out(self.output),
            "task": [_short(text) for text in (task.host, task.pipeline, task.run, task.name)],
            "complete": self.complete,
            "seconds": round(self.seconds, 6),
            "created": self.created,
            "checkpointed": self.checkpointed,
            "asset": _short(self.asset),
            "dataset": _short(self.dataset),
            "tags": [shorten(tag, TAG_MAX_BYTES) for tag in self.tags[:MAX_TAGS]],
            "type": _short(self.type),
            "nbytes": self.nbytes,
        }

    @classmethod
    def from_dict(cls, said: dict[str, Any]) -> Lineage:
        """Parse what :meth:`to_dict` produced.

        Raises:
            CorruptData: it is something else.
        """
        try:
            host, pipeline, run, name = said["task"]
            return cls(
                output=_ref_in(said["object"]),
                task=Task(str(host), str(pipeline), str(run), str(name)),
                inputs=tuple(_ref_in(one) for one in said["inputs"]),
                complete=bool(said["complete"]),
                seconds=float(said["seconds"]),
                created=float(said["created"]),
                checkpointed=bool(said["checkpointed"]),
                asset=str(said["asset"]),
                dataset=str(said["dataset"]),
                tags=tuple(map(str, said["tags"])),
                type=str(said["type"]),
                nbytes=None if said["nbytes"] is None else int(said["nbytes"]),
            )
        except (KeyError, TypeError, ValueError, InvalidArgument) as error:
            raise CorruptData(f"a lineage record cannot be read: {type(error).__name__}: {error}") from error


def write(store: Store, lineage: Lineage) -> list[ObjectID]:
    """Store the lineage of an object in its session.

    Args:
        store: the session of the output.
        lineage: of the object.

    Returns:
        The IDs of the record's pages.

    Raises:
        StoreFull, StoreUnavailable: it cannot be written.
    """
    key = key_of(lineage.output.id)
    pages = _paged(lineage.inputs)
    # The later pages first: whoever sees the first one finds all.
    written = []
    for number, page in enumerate(pages[1:], 1):
        written.append(records.put(store, f"{key}/{number}", {"inputs": page}, name=f"{key}/{number}"))
    head = {**lineage._head(), "inputs": pages[0], "pages": len(pages)}
    return [records.put(store, key, head, name=key), *written]


def read(store: Store, ref: ObjectRef) -> Lineage | None:
    """Read the lineage of an object; None: never recorded, or ended with its session.

    Args:
        store: any session of its scope.
        ref: the object.

    Raises:
        CorruptData, VersionMismatch: it cannot be read.
        StoreUnavailable: the store cannot be reached.
    """
    key = key_of(ref.id)
    head = records.get(store, key, session=ref.session)
    if head is None:
        return None
    inputs = list(head.get("inputs", ()))
    complete = bool(head.get("complete", False))
    for number in range(1, _pages(head)):
        page = records.get(store, f"{key}/{number}", session=ref.session)
        if page is None:
            complete = False
            break
        inputs.extend(page.get("inputs", ()))
    return Lineage.from_dict({**head, "inputs": inputs, "complete": complete})


def page_ids(store: Store, ref: ObjectRef) -> list[ObjectID]:
    """The IDs of a lineage record's pages, which a checkpoint includes; empty if there is no record."""
    key = key_of(ref.id)
    head = records.get(store, key, session=ref.session)
    if head is None:
        return []
    keys = [key, *(f"{key}/{number}" for number in range(1, _pages(head)))]
    return [records.record_id(store.scope, ref.session, one) for one in keys]


def distinct(inputs: Sequence[ObjectRef]) -> tuple[tuple[ObjectRef, ...], bool]:
    """Inputs without duplicates, up to the limit, and whether these are all."""
    found: dict[ObjectID, ObjectRef] = {}
    for one in inputs:
        found.setdefault(one.id, one)
    kept = tuple(found.values())
    return kept[:MAX_INPUTS], len(kept) <= MAX_INPUTS


def key_of(oid: ObjectID) -> str:
    """The key of an object's lineage record, also its name."""
    return f"{PREFIX}{oid}"


def _paged(inputs: Sequence[ObjectRef]) -> list[list[Any]]:
    pages: list[list[Any]] = [[]]
    taken = 0
    for one in inputs:
        said = _ref_out(one)
        size = len(json.dumps(said, ensure_ascii=False).encode("utf-8", "replace"))
        if pages[-1] and taken + size > PAGE_BYTES:
            pages.append([])
            taken = 0
        pages[-1].append(said)
        taken += size
    return pages


def _pages(head: dict[str, Any]) -> int:
    pages = head.get("pages", 1)
    if not isinstance(pages, int) or not 1 <= pages <= MAX_INPUTS:
        raise CorruptData(f"a lineage record has {pages!r} pages, which nobody writes")
    return pages


def _ref_out(ref: ObjectRef) -> list[Any]:
    # For display, and for orchestrators that find a task by its key: those keys are short.
    return [ref.session, str(ref.id), shorten(ref.key, KEY_MAX_BYTES), ref.instance, ref.generation]


def _ref_in(said: Any) -> ObjectRef:
    session, oid, key, instance, generation = said
    if not isinstance(generation, int):
        raise TypeError(f"the generation is {generation!r}")
    return ObjectRef(str(session), ObjectID(oid), str(key), str(instance), generation)


def _short(text: str) -> str:
    return shorten(text, TEXT_MAX_BYTES)
