"""The API server of a Kubernetes cluster: a small client, what Entrepot keeps there, and where objects are.

Plain HTTP by the standard library: whatever stands beside every daemon must be small. Importing this package imports
nothing else.
"""
