"""Requests to a Kubernetes API server, the resources that Entrepot keeps there, and the locations of objects.

``official`` imports the official Kubernetes client, and with it everything here that contacts a cluster; the resources
themselves need nothing. Importing this package imports nothing else.
"""
