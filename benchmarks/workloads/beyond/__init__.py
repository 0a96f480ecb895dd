"""Beyond memory: more than fits, spilling and reloading, eviction order, and recovery after a kill."""
