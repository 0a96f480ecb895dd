"""Everything that this plugin uses of Dagster beyond its documented interface; no other module of the plugin does.

Known versions: Dagster 1.11 to 1.13, dagster-k8s 0.27 to 0.29. Every name and its use is in
:mod:`entrepot_dagster.compat.private_names`; the tests check each one against the installed Dagster.

events         events of the engine in a run's log
library        the registry of Dagster's libraries
partitions     the context of one partition of an output
reexecution    plan, tags and job of a re-execution, and the runs before it
step_handlers  the step handler of dagster-k8s and its client
steps          the step behind a context, and the outputs that its inputs read

There is a module for each concern because importing the plugin must not import Dagster, and few have dagster-k8s.
"""
