"""The flights job on two hosts of a cluster, under Airflow's CeleryExecutor, with one of the hosts killed."""
