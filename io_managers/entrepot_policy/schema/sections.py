"""Mappings with known keys in a policy: pydantic models that remember where they are written."""

from __future__ import annotations

from typing import Any, ClassVar, TypeGuard, get_origin

from pydantic import BaseModel, ConfigDict, PrivateAttr

from entrepot_policy.schema.diagnostics import Location
from entrepot_policy.schema.yaml_nodes import MappingNode, Node, SequenceNode

# The tags of a value that is either a mapping or something simpler.
SCALAR, SECTION = "scalar", "section"
EXACTLY_ONE = "exactly_one"  # the type of the error of a section that has too few or too many keys


class Section(BaseModel):
    """A mapping with known keys. Its title is its name in messages.

    Patterns are Python's, because Rust's have no lookahead, without which ``$`` would match before a final line break.

    Attributes:
        exactly_one: whether it must have exactly one of its keys.
    """

    exactly_one: ClassVar[bool] = False

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, regex_engine="python-re")

    _node: MappingNode | None = PrivateAttr(default=None)  # None: nothing was written, all values are defaults

    @property
    def mark(self) -> Location:
        """Position of the section's first character."""
        return Location("") if self._node is None else self._node.location

    def at(self, key: str) -> Location:
        """Location of a value's key; that of the section if the value is omitted."""
        written = {} if self._node is None else self._node.entries
        return written[key][0] if key in written else self.mark

    def has(self, key: str) -> bool:
        """Whether a value is written, rather than its default."""
        return key in self.model_fields_set

    @classmethod
    def keys(cls) -> str:
        """All keys, for messages."""
        return ", ".join(cls.model_fields)

    @classmethod
    def title(cls) -> str:
        """Its name in messages."""
        return str(cls.model_config.get("title"))


def scalar_or_section(value: object) -> str:
    """The tag of a value, by which pydantic chooses its type."""
    return SECTION if isinstance(value, (dict, Section)) else SCALAR


def is_section(kind: Any) -> TypeGuard[type[Section]]:
    """Whether a type is that of a section."""
    # In Python 3.10, tuple[...] and its like are instances of type, too.
    return get_origin(kind) is None and isinstance(kind, type) and issubclass(kind, Section)


def locate(value: Any, node: Node) -> None:
    """Tell a section, and all sections in it, where they are written.

    Args:
        value: a section, or a value of one.
        node: from which it was read.
    """
    if isinstance(value, Section) and isinstance(node, MappingNode):
        value._node = node
        for key in value.model_fields_set:
            locate(getattr(value, key), node.entries[key][1])
    elif isinstance(value, dict) and isinstance(node, MappingNode):
        for name, item in value.items():
            locate(item, node.entries[name][1])
    elif isinstance(value, tuple):
        items = node.items if isinstance(node, SequenceNode) else (node,)  # a single item needs no list
        for item, item_node in zip(value, items, strict=True):
            locate(item, item_node)
