"""Code shared by the orchestrator plugins: codecs, references, keys, sessions, and passing values between tasks.

The plugins (``entrepot_airflow``, ``entrepot_dagster``, ``entrepot_kedro``) are thin layers over this package. It
imports nothing here: the core finds the codecs through an entry point and must not pay for the rest.
"""
