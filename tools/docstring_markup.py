"""Extension of griffe, which reads docstrings for the documentation's reference: makes Markdown of their markup.

Docstrings are read in editors and terminals, too, so they use what is common there: roles such as ``:class:`Store```,
and examples for doctest without a heading.
"""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension  # type: ignore[import-not-found]  # pyright: ignore[reportMissingImports]: in .venv-docs

_ROLE = re.compile(r":(?:class|meth|func|attr|mod|data|exc):`~?([^`]+)`")
_LITERAL = re.compile(r"``([^`\n]+)``")
_LITERAL_BLOCK = re.compile(r"::$", re.MULTILINE)


def to_markdown(text: str) -> str:
    """Turn a docstring into Markdown.

    >>> print(to_markdown("Read by :meth:`get`, not ``pop``.\\n\\n>>> 1 + 1\\n2"))
    Read by `get`, not `pop`.
    <BLANKLINE>
    ```pycon
    >>> 1 + 1
    2
    ```
    """
    text = _LITERAL.sub(r"`\1`", _ROLE.sub(r"`\1`", text))
    return _fence_examples(_LITERAL_BLOCK.sub(":", text))


def _fence_examples(text: str) -> str:
    """Put examples for doctest, which end with an empty line, in fences."""
    lines: list[str] = []
    indent: str | None = None
    for line in text.split("\n"):
        if indent is None and line.lstrip().startswith(">>> "):
            indent = line[: len(line) - len(line.lstrip())]
            lines.append(f"{indent}```pycon")
        elif indent is not None and not line.strip():
            lines.append(f"{indent}```")
            indent = None
        lines.append(line)
    if indent is not None:
        lines.append(f"{indent}```")
    return "\n".join(lines)


class DocstringMarkup(Extension):  # type: ignore[misc]
    """Changes every docstring as it is read."""

    def on_instance(self, *, obj: Any, **_: Any) -> None:
        """Change an object's docstring."""
        if obj.docstring is not None:
            obj.docstring.value = to_markdown(obj.docstring.value)
