"""What the policy records about runs: lineage, generations, statistics and the event log."""
