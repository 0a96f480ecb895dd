"""The policy's records about runs: lineage, generations, statistics and the event log."""
