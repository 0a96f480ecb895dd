"""The operator: turns Stores into DaemonSets, labels nodes with a store, and holds pods until their objects exist.

Pure functions decide what to do from what was observed (``children``, ``status``, ``labels``, ``gates``); a thin driver
(``running``) watches, calls them, and writes.
"""
