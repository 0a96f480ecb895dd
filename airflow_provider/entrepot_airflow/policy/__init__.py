"""Checkpoint and failover policy in Airflow: attempts, recovery, reruns by the scheduler, retries."""
