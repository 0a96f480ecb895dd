"""Programs that export and import a table by the ways of their libraries; they know nothing of pipes."""
