"""Entrepot on Kubernetes: the operator will live here. Nothing in it is used outside a cluster."""
