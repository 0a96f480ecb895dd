"""The documentation builds as a site, in which no link is broken, and which is complete without a network."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        not (ROOT / ".venv-docs/.synced").exists(), reason="there is no .venv-docs: make docs creates it"
    ),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built by the same script as ``make docs``."""
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(["bash", "tools/build_docs.sh", str(folder)], cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


def _text(page: Path) -> str:
    return re.sub(r"<[^>]+>", "", page.read_text(encoding="utf-8"))


def test_every_page_of_the_documentation_is_in_it(site: Path) -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        place = page.relative_to(ROOT / "docs")
        assert (site / place.with_name("index.html" if place.name == "README.md" else f"{place.stem}.html")).is_file()


def test_the_reference_has_docstrings_as_markdown(site: Path) -> None:
    text = _text(site / "reference/store.html")
    for words in ("Open another session of this scope", "seconds after its last use", "ObjectNotFound"):
        assert words in text
    for page in (site / "reference").glob("*.html"):
        assert not re.search(r":(class|meth|func|attr|mod):", _text(page)), f"{page.name} shows a role"


def test_it_loads_nothing_from_other_servers(site: Path) -> None:
    loading = re.compile(r"<(?:script|img|link|iframe)\b[^>]*?\b(?:src|href)=[\"']?((?:https?:)?//[^\"'\s>]+)")
    assert {
        match[1] for page in site.rglob("*.html") for match in loading.finditer(page.read_text(encoding="utf-8"))
    } == set()
    assert not [
        path for path in site.rglob("*.css") if re.search(r"url\([\"']?https?:", path.read_text(encoding="utf-8"))
    ]


def test_a_broken_link_or_anchor_is_an_error(tmp_path: Path) -> None:
    """With a copy of the configuration whose only page has what is wrong."""
    config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[0]
    config = re.sub(r"^(hooks|extra_css): .*$", "", config, flags=re.MULTILINE).replace(
        "docs_dir: docs", "docs_dir: pages"
    )
    (tmp_path / "pages").mkdir()
    (tmp_path / "mkdocs.yml").write_text(f"{config}\nnav: [index.md]\n", encoding="utf-8")
    command = [str(ROOT / ".venv-docs/bin/python"), "-m", "mkdocs", "build", "--strict"]

    def build(text: str) -> str:
        (tmp_path / "pages/index.md").write_text(text, encoding="utf-8")
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120).stderr

    assert "Aborted" not in build("# A page\n\n[itself](index.md#a-page)\n")
    assert "there is no such anchor" in build("# A page\n\n[nothing](#no-such-section)\n")
    assert "missing.md" in build("# A page\n\n[nothing](missing.md)\n")
