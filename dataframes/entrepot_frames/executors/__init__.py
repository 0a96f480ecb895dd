"""Programs on several ranks: the executor, and where its ranks run."""
