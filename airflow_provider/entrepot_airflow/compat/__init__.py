"""Everything that this plugin uses of Airflow beyond its public interface; no other module of the plugin does.

Known versions: Airflow 3.2 and 3.3. Every name and its use is in :mod:`entrepot_airflow.compat.private_names`; the
tests check each one against the installed Airflow.

components       which component of Airflow a listener was called for
database         Airflow's database: runs, XComs and DAGs as the scheduler has them
mapping          what a mapped task, or a mapped group, is expanded over
task_instances   task instances in the database: reading, clearing and releasing them
task_process     what a task's process can ask its supervisor for, and how it ends as a reschedule

Nothing of Airflow is imported before one of the functions is called, because its database takes a second to import.
"""
