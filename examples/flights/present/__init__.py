"""What the demo leaves behind: a table, a chart and a page."""
