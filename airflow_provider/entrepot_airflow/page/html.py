"""The page as HTML. It needs no scripts and has no links, because Airflow shows it in a sandboxed frame."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape

from entrepot.phrases import human_bytes
from entrepot_io.preview import Preview

from entrepot_airflow.page.contents import PageContents, ShownXCom

_STYLE = """
:root { color-scheme: light dark; }
body { font: 14px/1.5 system-ui, sans-serif; margin: 1.5rem; max-width: 72rem; }
h1 { font-size: 1.2rem; margin: 0 0 1rem; } h2 { font-size: 1.05rem; margin: 1.5rem 0 .5rem; }
table { border-collapse: collapse; margin: .5rem 0; display: block; overflow-x: auto; }
th, td { border: 1px solid #8886; padding: .2rem .6rem; text-align: left; vertical-align: top; white-space: pre-wrap; }
th { font-weight: 600; background: #8882; }
.note { background: #fa02; border-left: 3px solid #e90; padding: .4rem .8rem; } code { overflow-wrap: anywhere; }
"""


def render(contents: PageContents) -> str:
    """Return the page."""
    instance = contents.task_id if contents.map_index < 0 else f"{contents.task_id}[{contents.map_index}]"
    title = f"{contents.dag_id} / {contents.run_id} / {instance}"
    parts = [_xcom(xcom) for xcom in contents.xcoms]
    if not parts:
        parts.append("<p>This task instance has no XComs.</p>")
    if contents.more:
        parts.append(f"<p>{contents.more} more are not shown.</p>")
    parts.append(_readers(contents.readers))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Entrepot</title>'
        f"<style>{_STYLE}</style></head><body><h1>Values of {escape(title)}</h1>{''.join(parts)}</body></html>"
    )


def _xcom(xcom: ShownXCom) -> str:
    heading = f"<h2><code>{escape(xcom.key)}</code></h2>"
    if xcom.preview is None:
        return heading + (_note(xcom.problem) if xcom.problem else "<p>The value is in Airflow's database.</p>")
    preview = xcom.preview
    parts = [heading, _facts(preview, xcom.checkpoint)]
    if preview.problem:
        parts.append(_note(preview.problem))
    if preview.columns:
        schema = [[column.name, column.type, "yes" if column.nullable else "no"] for column in preview.columns]
        parts.append(f"<details><summary>{len(schema)} columns</summary>")
        parts.append(_table(["column", "type", "may be null"], schema) + "</details>")
    if preview.head:
        parts.append(f"<p>First {len(preview.head)} rows:</p>{_table(preview.head_columns, preview.head)}")
    if preview.text:
        parts.append(f"<p><code>{escape(preview.text)}</code></p>")
    return "".join(parts)


def _facts(preview: Preview, checkpoint: str) -> str:
    reference = preview.reference
    facts = [("type", reference.type), ("bytes", human_bytes(reference.nbytes))]
    if reference.shape is not None:
        facts.append(("shape", " x ".join(map(str, reference.shape))))
    if preview.rows is not None:
        facts.append(("rows", f"{preview.rows:,}"))
    if preview.own_bytes is not None and preview.shared_bytes is not None:
        facts.append(
            (
                "own bytes",
                f"{human_bytes(preview.own_bytes)}, of which {human_bytes(preview.shared_bytes)} are "
                f"shared with newer objects",
            )
        )
        facts.append(("bytes of older objects", human_bytes(preview.referenced_bytes)))
    facts.append(("lives", preview.place))
    facts.append(("checkpoint", checkpoint or "none"))
    facts.append(("mapped now by", ", ".join(f"process {pid}" for pid in preview.readers) or "no process"))
    if preview.names:
        facts.append(("names", ", ".join(preview.names)))
    facts.append(("object", f"{reference.id}, generation {reference.generation}"))
    facts.append(("session", f"{reference.session or '(the scope’s own)'} of scope {reference.scope}"))
    return _table(["", ""], [[name, value] for name, value in facts])


def _readers(readers: Mapping[str, Mapping[str, int]]) -> str:
    if not readers:
        return "<h2>Read by</h2><p>No task is directly downstream.</p>"
    rows = [
        [name, ", ".join(f"{count} {state}" for state, count in sorted(states.items())) or "no instance yet"]
        for name, states in readers.items()
    ]
    return "<h2>Read by</h2>" + _table(["task", "instances"], rows)


def _table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    names = list(header)
    head = f"<tr>{''.join(f'<th>{escape(name)}</th>' for name in names)}</tr>" if any(names) else ""
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table>{head}{body}</table>"


def _note(text: str) -> str:
    return f'<p class="note">{escape(text)}</p>'
