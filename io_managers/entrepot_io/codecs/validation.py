"""Reads a node's params without trusting them: anything inconsistent is ``CorruptData``, never a crash."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from entrepot.codec import Codec, Decoder, Node
from entrepot.errors import CorruptData, EntrepotError, UnsupportedType, VersionMismatch

MAX_INT64 = 2**63 - 1


def damaged(node: Node, what: str) -> CorruptData:
    """The error for a node that does not describe a value of its codec."""
    return CorruptData(f"a {node.codec} node is damaged: {what}")


def too_old(node: Node, what: str, package: Any, needed: str = "") -> VersionMismatch:
    """The error for a value that the version of a package here cannot represent.

    Args:
        node: describes the value.
        what: what the package does not have.
        package: the module.
        needed: the first version that has it; "": not known.
    """
    name = package.__name__
    install = f"install {name} {needed} or newer" if needed else f"install the version of {name} that wrote it"
    return VersionMismatch(
        f"the object ({node.codec}) has {what}, which {name} {package.__version__}, installed here, does not support: "
        f"{install}, or convert the value before it is put"
    )


@contextmanager
def translate_decode_errors(node: Node) -> Iterator[None]:
    """Translate libraries' errors for invalid data into ``CorruptData``; Entrepot's own errors pass unchanged."""
    try:
        yield
    except (EntrepotError, MemoryError, Warning):  # a warning that the user's filters turned into an error
        raise
    except ImportError as error:
        raise UnsupportedType(
            f"reading a {node.codec} node requires a package that is not installed here: {error}; install it"
        ) from error
    except Exception as error:  # constructors of other libraries raise their own types
        raise damaged(node, f"{type(error).__name__}: {error}") from error


class CheckedCodec(Codec):
    """A codec whose :meth:`rebuild` may rely on the libraries to reject invalid data."""

    def decode(self, node: Node, decoder: Decoder) -> Any:
        with translate_decode_errors(node):
            return self.rebuild(node, decoder)

    @abstractmethod
    def rebuild(self, node: Node, decoder: Decoder) -> Any:
        """Implements ``decode`` of :class:`entrepot.codec.Codec`; must itself reject what would crash a library."""


def fields(node: Node, count: int) -> list[Any]:
    """The params as a list of exactly ``count`` items."""
    if not isinstance(node.params, list) or len(node.params) != count:
        raise damaged(node, f"expected {count} params")
    return node.params


def size(node: Node, value: Any) -> int:
    """A length or an offset: an int from 0 to 2**63 - 1."""
    if type(value) is not int or not 0 <= value <= MAX_INT64:
        raise damaged(node, f"{value!r} is not a length")
    return value


def sizes(node: Node, value: Any) -> list[int]:
    """A list of lengths."""
    if not isinstance(value, list):
        raise damaged(node, f"{value!r} is not a list of lengths")
    return [size(node, item) for item in value]


def child(node: Node, index: int) -> Node:
    """Child ``index`` of the node."""
    if not 0 <= index < len(node.children):
        raise damaged(node, f"it has {len(node.children)} children, child {index} is missing")
    return node.children[index]
