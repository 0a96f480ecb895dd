"""The manifest of a checkpoint: its model, its serialized form, and the digests that name chunks."""
