"""A validated policy: rules, what they match, targets, and the loader that builds them from a file."""
