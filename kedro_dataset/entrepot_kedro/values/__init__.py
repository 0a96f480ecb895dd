"""Properties of a dataset from its catalog entry: name, form, scope and session."""
