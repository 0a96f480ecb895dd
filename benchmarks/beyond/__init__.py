"""Beyond memory: more than fits, its way to disk and back, who leaves first, and the store after a kill."""
