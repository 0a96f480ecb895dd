"""What ``entrepot doctor`` checks: the machine as its files describe it, and probes of what a store uses."""
