"""What a catalog entry says about a dataset: name, form, scope and session."""
