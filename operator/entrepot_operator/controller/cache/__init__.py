"""The operator's in-memory view of the cluster, kept current by informers."""
