"""The publisher: it stands beside the store of a node and tells the cluster's API what the store holds."""
