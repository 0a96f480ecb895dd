"""Keys of outputs, the references recorded for them, and what concerns values without a policy."""
