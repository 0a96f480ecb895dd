"""Collections of tables and tensors as one value: readers, frames, scans, datasets."""
