"""From rows of results to tables, goals, plots and the page of the documentation."""
