"""The groups of the complete measurement, one module each."""
