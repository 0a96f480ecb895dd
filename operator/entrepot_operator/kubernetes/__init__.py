"""A small client for a Kubernetes API server, the resources that Entrepot keeps there, and the locations of objects.

It uses plain HTTP and only the standard library, because the process that runs beside every daemon must be small.
Importing this package imports nothing else.
"""
