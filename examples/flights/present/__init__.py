"""The demo's output: a table, a chart and a page."""
