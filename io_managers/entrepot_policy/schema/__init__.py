"""The definition of a policy file: value types, sections, YAML nodes with locations, diagnostics."""
