"""Files of Kubernetes documents: parsed, modified, and written back with comments and order preserved.

An unchanged document is written exactly as it was read.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Literal

from entrepot.errors import InvalidArgument

from entrepot_operator.placement.formats import yaml_patch

Syntax = Literal["yaml", "json"]
_SEPARATOR = re.compile(r"^---[ \t]*(#.*)?$")
_INSTALL_HINT = "YAML requires ruamel.yaml: pip install 'entrepot[inject]', or use JSON"


@dataclass
class Part:
    """One document of a file.

    Attributes:
        source: its text.
        separator: the separator line above it, with its line ending; empty for a first document without one.
        tree: the parsed YAML with comments.
        content: plain data; None: only comments.
        changed: its new content; None: unchanged.
    """

    source: str
    separator: str
    tree: Any
    content: Any
    changed: Any = None


@dataclass
class Manifest:
    """The documents of one file.

    Attributes:
        name: of the file, for messages.
        form: its syntax.
        parts: the documents.
    """

    name: str
    form: Syntax
    parts: list[Part]


def parse(text: str, name: str) -> Manifest:
    """Parse the documents in a text.

    Args:
        text: YAML or JSON.
        name: of the file, for messages.

    Raises:
        InvalidArgument: it is neither, or YAML support is not installed; the message has name and line.
    """
    if text.lstrip()[:1] in ("{", "["):
        try:
            content = json.loads(text)
        except (json.JSONDecodeError, RecursionError) as error:
            if not _has_yaml():
                raise InvalidArgument(f"{name} is not valid JSON: {error}; {_INSTALL_HINT}") from None
        else:
            return Manifest(name, "json", [Part(text, "", None, content)])
    if not _has_yaml():
        raise InvalidArgument(f"{name} is not JSON; {_INSTALL_HINT}")
    parts: list[Part] = []
    line = 1
    for separator, source in _split(text):
        tree = _load(source, name, line + bool(separator))
        line += separator.count("\n") + source.count("\n")
        try:
            content = None if tree is None else yaml_patch.to_plain(tree)
        except InvalidArgument as error:
            raise InvalidArgument(f"{name}: {error}") from None
        parts.append(Part(source, separator, tree, content))
    return Manifest(name, "yaml", parts)


def serialize(manifests: list[Manifest], form: Syntax | None) -> str:
    """Serialize the documents of all files as one text.

    Args:
        manifests: the files.
        form: the syntax; None: that of the first file.
    """
    parts = [part for manifest in manifests for part in manifest.parts]
    if (form or manifests[0].form) == "json":
        contents = [part.content if part.changed is None else part.changed for part in parts]
        contents = [content for content in contents if content is not None]
        if len(contents) != 1:
            contents = [{"apiVersion": "v1", "kind": "List", "items": contents}]
        return json.dumps(contents[0], indent=2, ensure_ascii=False) + "\n"
    texts: list[str] = []
    for part in parts:
        separator = part.separator
        if texts and not separator:
            separator = "---\n"
        if texts and not texts[-1].endswith("\n"):
            texts[-1] += "\n"
        texts.append(separator + _part_text(part))
    return "".join(texts)


def _part_text(part: Part) -> str:
    if part.changed is None and part.tree is not None:
        return part.source
    if part.tree is None:
        return part.source if part.content is None else _dump(_build_yaml(part), part.source)
    yaml_patch.update(part.tree, part.changed)
    text = _dump(part.tree, part.source)
    if _parses_to(text, part.changed):
        return text
    return _dump(
        yaml_patch.build_tree(part.changed), part.source
    )  # a document's content takes precedence over its comments


def _parses_to(text: str, content: Any) -> bool:
    """Whether a text parses to this content; comments in odd places can confuse the YAML writer."""
    try:
        return bool(yaml_patch.to_plain(_load(text, "what was written", 1)) == content)
    except InvalidArgument:
        return False


def _build_yaml(part: Part) -> Any:
    if not _has_yaml():
        raise InvalidArgument(_INSTALL_HINT)
    return yaml_patch.build_tree(part.content if part.changed is None else part.changed)


def _dump(tree: Any, source: str) -> str:
    import io

    yaml = _yaml()
    mapping, sequence, offset = _detect_indents(source)
    yaml.indent(mapping=mapping, sequence=sequence, offset=offset)
    buffer = io.StringIO()
    yaml.dump(tree, buffer)
    text = buffer.getvalue()
    return text.replace("\n", "\r\n") if "\r\n" in source else text


def _load(source: str, name: str, line: int) -> Any:
    from ruamel.yaml.error import MarkedYAMLError

    try:
        return _yaml().load(source.replace("\r\n", "\n"))
    except MarkedYAMLError as error:
        mark = error.problem_mark
        position = f"{name}, line {line + mark.line}, column {mark.column + 1}" if mark is not None else name
        raise InvalidArgument(f"{position}: {error.problem or error.context or 'not valid YAML'}") from None
    except Exception as error:  # an invalid date, excessive nesting, or whatever else breaks a parser
        raise InvalidArgument(f"{name}, in the document at line {line}: {type(error).__name__}: {error}") from error


def _yaml() -> Any:
    from ruamel.yaml import YAML

    yaml = YAML(typ="rt", pure=True)
    yaml.preserve_quotes = True
    yaml.width = 1 << 20  # never wrap lines
    return yaml


def _has_yaml() -> bool:
    from importlib.util import find_spec

    try:
        return find_spec("ruamel.yaml") is not None
    except ModuleNotFoundError:
        return False


def _split(text: str) -> list[tuple[str, str]]:
    """Split a text into documents, each with the separator line above it; the first may have none."""
    documents: list[tuple[str, list[str]]] = [("", [])]
    for line in text.splitlines(keepends=True):
        if _SEPARATOR.match(line.rstrip("\r\n")):
            documents.append((line, []))
        else:
            documents[-1][1].append(line)
    if not "".join(documents[0][1]) and len(documents) > 1:
        documents = documents[1:]
    return [(separator, "".join(lines)) for separator, lines in documents]


def _detect_indents(source: str) -> tuple[int, int, int]:
    """The indentation of mappings, list items and their dashes that most of the document uses."""
    mappings: dict[int, int] = {}
    dashes: dict[int, int] = {}
    parent: int | None = None
    for line in source.splitlines():
        stripped = line.lstrip(" ")
        if not stripped or stripped.startswith("#"):
            continue
        column = len(line) - len(stripped)
        if parent is not None:
            if stripped.startswith("- "):
                dashes[column - parent] = dashes.get(column - parent, 0) + 1
            elif column > parent:
                mappings[column - parent] = mappings.get(column - parent, 0) + 1
        while stripped.startswith("- "):
            inner = stripped[2:].lstrip(" ")
            column += len(stripped) - len(inner)
            stripped = inner
        parent = column if re.match(r"[^\s#'\"{\[][^#]*:\s*(#.*)?$", stripped) else None
    mapping = max(mappings, key=lambda width: mappings[width], default=2)
    offset = max(0, max(dashes, key=lambda width: dashes[width], default=0))
    return mapping, offset + 2, offset
