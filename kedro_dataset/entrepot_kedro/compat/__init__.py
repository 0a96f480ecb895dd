"""Everything that this plugin uses of Kedro beyond its documented interface; no other module of the plugin does.

Known versions: Kedro 1.0 to 1.7. Every name and its use is in :mod:`entrepot_kedro.compat.private_names`; the tests
check each one against the installed Kedro.

datasets    what is in a cache, and whether a dataset outlives its run
nodes       another function in place of a node's ``run``
projects    a project's hooks, and its pipelines in a worker process
runners     base classes of the plugin's runners
versions    base of a dataset whose versions are not files

There is a module for each concern because most processes need only one of them, and Kedro's runners are slow to import.
"""
