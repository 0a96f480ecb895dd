"""Triggers of the provider, which Airflow runs in its triggerer."""
