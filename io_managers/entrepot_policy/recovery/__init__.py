"""Recovery of lost values: failover steps, plans of reruns, restores, and the cost of recomputing."""
