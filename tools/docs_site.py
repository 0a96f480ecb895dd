"""Hooks of MkDocs that make the site of ``docs`` without changing how its pages read elsewhere.

- Pages link to files outside ``docs``, relative to themselves, as they have to where the repository is browsed. The
  site has these files, too, under ``repository/``: Markdown as pages, anything else as it is. A folder without a README
  is only named.
- Pages of the reference, which would be no use there, are made here: see ``REFERENCE``.
- An entry of the navigation may be a pattern, which stands for the pages that match it.
"""

from __future__ import annotations

import os.path
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError  # type: ignore[import-not-found]  # pyright: ignore[reportMissingImports]
from mkdocs.structure.files import (  # type: ignore[import-not-found]  # pyright: ignore[reportMissingImports]
    File,
    InclusionLevel,
)
from reference_pages import REFERENCE

ROOT = Path(__file__).resolve().parents[1]
DOCS = "docs"
OUTSIDE = "repository"
# A link to a file, whose text may have code in it; or code, in which nothing is a link.
_LINK = re.compile(
    r"\[(?P<text>(?:`[^`]*`|[^\]`])+)\]\((?P<link>[^)\s#]+)(?P<anchor>#[^)\s]*)?\)|^```.*?^```|`[^`]+`",
    re.MULTILINE | re.DOTALL,
)
_ELSEWHERE = re.compile(r"[a-z]+:|#")


def on_config(config: Any) -> Any:
    """Expand the patterns of the navigation."""
    config.nav = _expand(config.nav)
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages of the reference, and the files outside ``docs`` that pages link to."""
    for page in REFERENCE:
        files.append(File.generated(config, page.path, content=page.markdown()))
    waiting = [
        (f"{DOCS}/{file.src_uri}", _targets(f"{DOCS}/{file.src_uri}", file.content_string))
        for file in files
        if file.src_uri.endswith(".md")
    ]
    waiting.append(("mkdocs.yml", [_path(uri) for uri in _uris(config.nav) if uri.startswith(f"{OUTSIDE}/")]))
    added: set[str] = set()
    while waiting:
        path, targets = waiting.pop()
        for target in targets:
            if _is_in_docs(target) or target in added or (ROOT / target).is_dir():
                continue
            if not (ROOT / target).is_file():
                raise PluginError(f"{path} links to {target}, which is no file")
            added.add(target)
            file = File.generated(config, _uri(target), content=(ROOT / target).read_bytes())
            file.inclusion = InclusionLevel.INCLUDED if target.endswith(".md") else InclusionLevel.NOT_IN_NAV
            files.append(file)
            if target.endswith(".md"):
                waiting.append((target, _targets(target, (ROOT / target).read_text(encoding="utf-8"))))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Make links to files outside ``docs``, and from them, those of the site."""
    path = _path(page.file.src_uri)

    def replace(match: re.Match[str]) -> str:
        text, link, anchor = match.groups()
        if link is None or _ELSEWHERE.match(link):
            return match[0]
        target = _target(path, link)
        if (ROOT / target).is_dir():
            return text
        uri = posixpath.relpath(_uri(target), posixpath.dirname(page.file.src_uri) or ".")
        return f"[{text}]({uri}{anchor or ''})"

    return _LINK.sub(replace, markdown)


def _targets(path: str, text: str) -> list[str]:
    """The paths in the repository that a page links to."""
    links = [match["link"] for match in _LINK.finditer(text)]
    return [_target(path, link) for link in links if link is not None and not _ELSEWHERE.match(link)]


def _target(path: str, link: str) -> str:
    target = posixpath.normpath(posixpath.join(posixpath.dirname(path), link))
    if (ROOT / target).is_dir() and (ROOT / target / "README.md").is_file():
        target = f"{target}/README.md"
    return target


def _is_in_docs(path: str) -> bool:
    return path.startswith(f"{DOCS}/")


def _uri(path: str) -> str:
    """Where the site has a file of the repository."""
    return path.removeprefix(f"{DOCS}/") if _is_in_docs(path) else f"{OUTSIDE}/{path}"


def _path(uri: str) -> str:
    """The file of the repository that the site has there."""
    return uri.removeprefix(f"{OUTSIDE}/") if uri.startswith(f"{OUTSIDE}/") else f"{DOCS}/{uri}"


def _uris(nav: list[Any]) -> list[str]:
    """The pages of a navigation."""
    below = [value for entry in nav for value in (entry.values() if isinstance(entry, dict) else [entry])]
    return [uri for value in below for uri in (_uris(value) if isinstance(value, list) else [value])]


def _expand(nav: list[Any]) -> list[Any]:
    expanded: list[Any] = []
    for entry in nav:
        if isinstance(entry, dict):
            expanded.append(
                {title: _expand(below) if isinstance(below, list) else below for title, below in entry.items()}
            )
        elif "*" in entry:
            paths = sorted(path.relative_to(ROOT / DOCS) for path in (ROOT / DOCS).glob(entry))
            expanded += [path.as_posix() for path in paths if path.name != "README.md"]
        else:
            expanded.append(entry)
    return expanded


def on_post_build(config: Any) -> None:
    """Check that no page of the site loads anything from another server."""
    loads = re.compile(r"<(?:script|img|link|iframe|source)\b[^>]*?\b(?:src|href)=[\"']?((?:https?:)?//[^\"'\s>]+)")
    for path in Path(config.site_dir).rglob("*.html"):
        if match := loads.search(path.read_text(encoding="utf-8")):
            raise PluginError(f"{os.path.relpath(path, config.site_dir)} loads {match[1]}, from another server")
