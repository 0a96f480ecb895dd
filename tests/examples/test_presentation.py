"""Table, chart and page for given figures."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from examples.flights import demo
from examples.flights.measure.memory import Sample
from examples.flights.measure.meter import CallTotals
from examples.flights.present import chart, page, table
from examples.flights.runs import MB, Figures, Outcome
from examples.flights.transports import TRANSPORTS

ABOUT = {"flights": "1,000", "scale": 1, "sample seconds": 0.2}


def figures(orchestrator: str, name: str, write: float = 1.0) -> Figures:
    transport = next(
        candidate for candidate in TRANSPORTS if (candidate.orchestrator, candidate.name) == (orchestrator, name)
    )
    return Figures(
        orchestrator=orchestrator,
        name=name,
        label=transport.label,
        what=transport.what,
        write_seconds=write,
        read_seconds=0.5,
        calls=12,
        bytes_written=10 * MB,
        bytes_read=20 * MB,
        bytes_stored=5 * MB,
        peak_bytes=700 * MB,
        idle_bytes=300 * MB,
        peak=Sample(1.0, 3, pss=600 * MB, shared=0, files=100 * MB, stored=60 * MB, leased=20 * MB, kept=40 * MB),
        run_seconds=12.34,
        samples=60,
        report={"flights": 1000, "r2": 0.2},
        travelled={"load": '{"entrepot": 1, "type": "<dict>"}'},
    )


@pytest.fixture
def rows() -> list[Figures]:
    return [
        figures(transport.orchestrator, transport.name, 0.25 if transport.is_entrepot else 2.5)
        for transport in TRANSPORTS
    ]


def test_table_has_a_line_per_run(rows: list[Figures]) -> None:
    lines = table.text_table(rows).splitlines()
    assert len(lines) == 2 + len(rows) + 2  # the header, its rule, and blank lines between orchestrators
    line = next(line for line in lines if "object storage" in line)
    assert line.split()[-7:] == ["3.00", "2.50", "0.50", "35", "700", "400", "12.3"]


def test_memory_at_the_peak_is_told_by_use(rows: list[Figures]) -> None:
    assert table.memory_cells(rows[0])[2:] == ("60", "20", "40", "580", "700")
    assert "Where the memory goes at the peak" in page.page(rows, ABOUT)
    assert len(table.memory_table(rows).splitlines()) == len(table.text_table(rows).splitlines())


def test_gains_compare_with_entrepot_on_the_same_orchestrator(rows: list[Figures]) -> None:
    sentences = table.comparison_sentences(rows)
    assert len(sentences) == len(rows) - 3
    assert (
        "airflow: sharing took 3.00 s with object storage XCom, 0.75 s with Entrepot (4.0 times as fast)"
        in sentences[0]
    )
    assert table.comparison_sentences([row for row in rows if row.name != "entrepot"]) == []
    assert table.speed_ratio(0.5) == "2.0 times as slow"


def test_json_keeps_everything(rows: list[Figures]) -> None:
    results = json.loads(json.dumps(table.as_json(rows, ABOUT)))
    assert results["about"] == ABOUT
    assert results["runs"][1]["sharing_seconds"] == 3.0
    assert results["runs"][1]["bytes_moved"] == 35 * MB
    assert {run["orchestrator"] for run in results["runs"]} == {"airflow", "dagster", "kedro"}


class _Page(HTMLParser):
    """Checks that tags are balanced, and collects the page's text and links."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag != "meta":
            self.open.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_page_is_whole_and_needs_nothing_else(rows: list[Figures]) -> None:
    parsed = _Page()
    parsed.feed(page.page(rows, ABOUT))
    parsed.close()
    assert parsed.open == []
    assert parsed.links == []
    for row in rows:
        assert row.label in parsed.text
    assert '"type": "<dict>"' in parsed.text  # escaped, therefore visible
    assert "All 7 runs gave the same answer." in parsed.text


def test_page_of_one_run_claims_no_agreement(rows: list[Figures]) -> None:
    assert "same answer" not in page.page(rows[:1], ABOUT)


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 7])
def test_chart_is_a_picture(rows: list[Figures], tmp_path: Path, count: int) -> None:
    path = tmp_path / "chart.png"
    chart.draw(rows[:count], "a subtitle", path)
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    width = int.from_bytes(content[16:20], "big")
    height = int.from_bytes(content[20:24], "big")
    assert width > 2000
    assert height > 300


def test_orchestrators_are_set_apart(rows: list[Figures]) -> None:
    places = chart.positions(rows)
    gaps = [after - before for before, after in itertools.pairwise(places)]
    assert gaps == pytest.approx([1.0, 2.1, 1.0, 2.1, 1.0, 1.0])


def test_different_answers_are_named(rows: list[Figures]) -> None:
    assert demo.answer_differences(rows) == []
    rows[3] = replace(rows[3], report=rows[3].report | {"r2": 0.3})
    (difference,) = demo.answer_differences(rows)
    assert "r2" in difference
    assert "0.3" in difference
    assert "filesystem IO manager" in difference


def test_peak_is_of_the_run_alone() -> None:
    outcome = Outcome(TRANSPORTS[0], {}, 2.0, 10.0, 12.0, CallTotals(1, 1, 0.5, 0.25, 10, 20))
    totals = [(9.0, 900), (9.9, 100), (10.5, 300), (11.0, 500), (12.5, 800)]
    samples = [Sample(when, 1, total, 0, 0) for when, total in totals]
    measured = Figures.of(outcome, samples, bytes_stored=7)
    assert (measured.peak_bytes, measured.idle_bytes, measured.samples) == (500, 100, 2)
    assert (measured.sharing_seconds, measured.bytes_moved, measured.calls) == (0.75, 37, 2)
    with pytest.raises(ValueError, match="no memory sample"):
        Figures.of(outcome, samples[:2], bytes_stored=7)
