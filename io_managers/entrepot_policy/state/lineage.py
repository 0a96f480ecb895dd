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
from entrepot_io.reference import Reference

from entrepot_policy.rules.match_target import Subject, Task
from entrepot_policy.state import records

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
    """An object's origin.

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
        return {**self._to_head(), "inputs": [_encode_ref(ref) for ref in self.inputs]}

    def _to_head(self) -> dict[str, Any]:
        task = self.task
        return {
            "object": _encode_ref(self.output),
            "task": [_shorten_text(text) for text in (task.orchestrator, task.pipeline, task.run, task.name)],
            "complete": self.complete,
            "seconds": round(self.seconds, 6),
            "created": self.created,
            "checkpointed": self.checkpointed,
            "asset": _shorten_text(self.asset),
            "dataset": _shorten_text(self.dataset),
            "tags": [shorten(tag, TAG_MAX_BYTES) for tag in self.tags[:MAX_TAGS]],
            "type": _shorten_text(self.type),
            "nbytes": self.nbytes,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Lineage:
        """Parse what :meth:`to_dict` produced.

        Raises:
            CorruptData: it is something else.
        """
        try:
            orchestrator, pipeline, run, name = data["task"]
            return cls(
                output=_decode_ref(data["object"]),
                task=Task(str(orchestrator), str(pipeline), str(run), str(name)),
                inputs=tuple(_decode_ref(item) for item in data["inputs"]),
                complete=bool(data["complete"]),
                seconds=float(data["seconds"]),
                created=float(data["created"]),
                checkpointed=bool(data["checkpointed"]),
                asset=str(data["asset"]),
                dataset=str(data["dataset"]),
                tags=tuple(map(str, data["tags"])),
                type=str(data["type"]),
                nbytes=None if data["nbytes"] is None else int(data["nbytes"]),
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
    key = record_key(lineage.output.id)
    pages = _split_pages(lineage.inputs)
    # The later pages first: a reader that sees the first one finds all.
    written = []
    for number, page in enumerate(pages[1:], 1):
        written.append(records.put(store, f"{key}/{number}", {"inputs": page}, name=f"{key}/{number}"))
    head = {**lineage._to_head(), "inputs": pages[0], "pages": len(pages)}
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
    key = record_key(ref.id)
    head = records.get(store, key, session=ref.session)
    if head is None:
        return None
    inputs = list(head.get("inputs", ()))
    complete = bool(head.get("complete", False))
    for number in range(1, _page_count(head)):
        page = records.get(store, f"{key}/{number}", session=ref.session)
        if page is None:
            complete = False
            break
        inputs.extend(page.get("inputs", ()))
    return Lineage.from_dict({**head, "inputs": inputs, "complete": complete})


def page_ids(store: Store, ref: ObjectRef) -> list[ObjectID]:
    """The IDs of a lineage record's pages, which a checkpoint includes; empty if there is no record."""
    key = record_key(ref.id)
    head = records.get(store, key, session=ref.session)
    if head is None:
        return []
    keys = [key, *(f"{key}/{number}" for number in range(1, _page_count(head)))]
    return [records.record_id(store.scope, ref.session, page_key) for page_key in keys]


def distinct_inputs(inputs: Sequence[ObjectRef]) -> tuple[tuple[ObjectRef, ...], bool]:
    """Inputs without duplicates, up to the limit, and whether these are all."""
    unique: dict[ObjectID, ObjectRef] = {}
    for ref in inputs:
        unique.setdefault(ref.id, ref)
    kept = tuple(unique.values())
    return kept[:MAX_INPUTS], len(kept) <= MAX_INPUTS


def record_key(oid: ObjectID) -> str:
    """The key of an object's lineage record, also its name."""
    return f"{PREFIX}{oid}"


def _split_pages(inputs: Sequence[ObjectRef]) -> list[list[Any]]:
    pages: list[list[Any]] = [[]]
    page_bytes = 0
    for ref in inputs:
        encoded = _encode_ref(ref)
        size = len(json.dumps(encoded, ensure_ascii=False).encode("utf-8", "replace"))
        if pages[-1] and page_bytes + size > PAGE_BYTES:
            pages.append([])
            page_bytes = 0
        pages[-1].append(encoded)
        page_bytes += size
    return pages


def _page_count(head: dict[str, Any]) -> int:
    pages = head.get("pages", 1)
    if not isinstance(pages, int) or not 1 <= pages <= MAX_INPUTS:
        raise CorruptData(f"a lineage record has an invalid number of pages: {pages!r}")
    return pages


def _encode_ref(ref: ObjectRef) -> list[Any]:
    # For display, and for orchestrators that find a task by its key: those keys are short.
    return [ref.session, str(ref.id), shorten(ref.key, KEY_MAX_BYTES), ref.instance, ref.generation]


def _decode_ref(encoded: Any) -> ObjectRef:
    session, oid, key, instance, generation = encoded
    if not isinstance(generation, int):
        raise TypeError(f"invalid generation {generation!r}")
    return ObjectRef(str(session), ObjectID(oid), str(key), str(instance), generation)


def _shorten_text(text: str) -> str:
    return shorten(text, TEXT_MAX_BYTES)
