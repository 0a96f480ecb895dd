"""The same figures as a self-contained HTML page."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from typing import Any

from examples.flights.present.chart import PANELS, Panel
from examples.flights.present.table import COLUMNS, MEMORY_COLUMNS, cells, comparison_sentences, memory_cells
from examples.flights.runs import Figures

_STYLE = """
:root { --ink: #1e293b; --faint: #64748b; --rule: #e2e8f0; --paper: #ffffff; --ours: #0f766e; --ours2: #5eb8ae;
  --others: #64748b; --others2: #b4bfcd; }
@media (prefers-color-scheme: dark) { :root { --ink: #e2e8f0; --faint: #94a3b8; --rule: #334155; --paper: #0f172a;
  --ours: #2dd4bf; --ours2: #115e59; --others: #94a3b8; --others2: #475569; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1120px; padding: 2.5rem 1.5rem 4rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
h1 { font-size: 1.8rem; margin: 0 0 .25rem; } h2 { font-size: 1.2rem; margin: 2.6rem 0 .6rem; }
p { margin: .4rem 0; } .faint { color: var(--faint); } .ok { color: var(--ours); font-weight: 600; }
.panels { display: grid; grid-template-columns: repeat(auto-fit, minmax(440px, 1fr)); gap: 1.6rem 3rem; }
.panel h3 { font-size: 1rem; margin: 0 0 .1rem; } .panel .orchestrator { font-weight: 600; margin: .7rem 0 .15rem; }
.bar { display: grid; grid-template-columns: 11.5rem 1fr; align-items: center; gap: .7rem; font-size: .88rem;
  margin: .12rem 0; }
.track { display: flex; align-items: center; height: 1.15rem; }
.track i { display: block; height: 100%; } .track span { padding-left: .45rem; white-space: nowrap; }
.dark { background: var(--others); } .light { background: var(--others2); }
.ours { font-weight: 600; } .ours .dark { background: var(--ours); } .ours .light { background: var(--ours2); }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: .88rem; width: 100%; }
th, td { text-align: right; padding: .35rem .6rem; border-bottom: 1px solid var(--rule); white-space: nowrap;
  font-variant-numeric: tabular-nums; } th { color: var(--faint); font-weight: 600; }
th:nth-child(-n+2), td:nth-child(-n+2) { text-align: left; } tr.ours td { color: var(--ours); }
pre { background: color-mix(in srgb, var(--rule) 45%, transparent); padding: .8rem 1rem; border-radius: 6px;
  overflow-x: auto; font-size: .8rem; line-height: 1.45; margin: .4rem 0; }
summary { cursor: pointer; } details { margin: .5rem 0; } li { margin: .25rem 0; }
"""
# Width of the longest bar, in percent of its track; the rest is for the number after it.
_LONGEST_BAR_PERCENT = 78.0


def page(rows: Sequence[Figures], about: dict[str, Any]) -> str:
    """The whole page.

    Args:
        rows: the runs, grouped by orchestrator.
        about: the machine and the options, as in the JSON.
    """
    answer = html.escape(json.dumps(rows[0].report, indent=2))
    sentences = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in comparison_sentences(rows))
    facts = " · ".join(html.escape(f"{name} {value}") for name, value in about.items())
    body = [
        "<h1>One job on three orchestrators, with each transport</h1>",
        f'<p class="faint">{facts}</p>',
        f'<p class="ok">All {len(rows)} runs gave the same answer.</p>' if len(rows) > 1 else "",
        f"<ul>{sentences}</ul>" if sentences else "",
        '<div class="panels">',
        *(_panel(panel, rows) for panel in PANELS),
        "</div>",
        "<h2>The figures</h2>",
        _table(rows),
        "<h2>Where the memory goes at the peak</h2>",
        '<p class="faint">In MB, in the sample with the largest total. Not used: memory that the store keeps for the '
        "next values. Being made: lent to tasks that make values. Processes: all memory that is not the store's "
        "segments, of tasks, orchestrator and store.</p>",
        _html_table(MEMORY_COLUMNS, [(row, memory_cells(row)) for row in rows]),
        "<h2>What the orchestrator stores in place of a value</h2>",
        *(_stored_values(row) for row in rows),
        "<h2>The answer</h2>",
        f"<pre>{answer}</pre>",
        "<h2>How it was measured</h2>",
        _measurement_notes(about),
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Entrepot: flights</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(part for part in body if part)
        + "\n</body>\n</html>\n"
    )


def _panel(panel: Panel, rows: Sequence[Figures]) -> str:
    largest = max(sum(panel.values(row)) for row in rows) or 1.0
    parts = f"dark: {panel.parts[0]}, light: {panel.parts[1]}" if panel.parts[0] else "&nbsp;"
    lines = [f'<section class="panel"><h3>{html.escape(panel.title)}</h3><div class="faint">{parts}</div>']
    orchestrator = None
    for row in rows:
        if row.orchestrator != orchestrator:
            orchestrator = row.orchestrator
            lines.append(f'<div class="orchestrator">{html.escape(orchestrator.capitalize())}</div>')
        first, second = panel.values(row)
        number = f"{first + second:,.{panel.digits}f} {panel.unit}"
        widths = [f"{value / largest * _LONGEST_BAR_PERCENT:.2f}%" for value in (first, second)]
        lines.append(
            f'<div class="bar{_entrepot_class(row)}"><span>{html.escape(row.label)}</span><div class="track">'
            f'<i class="dark" style="width:{widths[0]}"></i><i class="light" style="width:{widths[1]}"></i>'
            f"<span>{number}</span></div></div>"
        )
    return "\n".join([*lines, "</section>"])


def _table(rows: Sequence[Figures]) -> str:
    return _html_table(COLUMNS, [(row, cells(row)) for row in rows])


def _html_table(columns: Sequence[str], lines: Sequence[tuple[Figures, Sequence[str]]]) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
    body = "".join(
        f'<tr class="run{_entrepot_class(row)}">' + "".join(f"<td>{html.escape(cell)}</td>" for cell in line) + "</tr>"
        for row, line in lines
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _stored_values(row: Figures) -> str:
    entries = "\n".join(f"{task:10} {_shorten(text)}" for task, text in row.travelled.items())
    open_attribute = " open" if row.name == "entrepot" and row.orchestrator == "airflow" else ""
    return (
        f"<details{open_attribute}><summary>{html.escape(row.orchestrator.capitalize())}, {html.escape(row.label)} "
        f'<span class="faint">({html.escape(row.what)})</span></summary><pre>{html.escape(entries)}</pre></details>'
    )


def _shorten(text: str, max_length: int = 400) -> str:
    return text if len(text) <= max_length else f"{text[:max_length]}... ({len(text)} characters)"


def _measurement_notes(about: dict[str, Any]) -> str:
    return (
        "<p><b>Data sharing</b> is the time spent in the orchestrator's own save and load calls, measured in the same "
        "way for every transport, including serialization and the orchestrator's bookkeeping. Imports that a value's "
        "type needs happen before the clock starts; imports that a transport needs count.</p>"
        "<p><b>Bytes copied</b> are those that the tasks' processes wrote and read by system calls (files, pipes, "
        "sockets) during these calls, and those that were copied into the store's shared memory. Copies inside a "
        "process are not counted, nor are those of a manager process or of Airflow's servers. Object storage XComs are "
        "compressed Parquet, written as hexadecimal digits.</p>"
        "<p><b>Peak memory</b> is the largest proportional set size of all processes of the orchestrator and of the "
        "store, plus the pages of the store's memory files that no process has mapped, sampled every "
        f"{html.escape(str(about.get('sample seconds', '?')))} s. The page cache of files is not counted. Memory "
        "used before the run is that of Airflow's servers and the store's provisioned memory.</p>"
        "<p><b>End to end</b> is the time from the request for the run to its end: in Airflow for a DAG run in a "
        "server that is already up, in Dagster and Kedro for the whole command.</p>"
    )


def _entrepot_class(row: Figures) -> str:
    return " ours" if row.name == "entrepot" else ""
