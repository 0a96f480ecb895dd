"""The operator: turns Stores into DaemonSets, labels nodes with a store, and holds pods until their objects exist.

Pure functions decide what to do from what was observed (``state``); a thin driver (``main``, ``reconciler``) watches,
calls them, and writes.
"""
