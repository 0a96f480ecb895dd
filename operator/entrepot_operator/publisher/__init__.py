"""The publisher: runs beside a node's store and reports the store's contents to the cluster's API."""
