"""The operator: Stores become DaemonSets, nodes with a store get a label, pods are held until their objects are there.

What is to be done is decided by pure functions of what was observed (``children``, ``status``, ``labels``, ``gates``);
a thin driver (``running``) watches, calls them, and writes.
"""
