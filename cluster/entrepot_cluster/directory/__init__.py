"""The directory of a cluster: which stores there are, and where published objects are."""
