"""What every orchestrator shares: codecs, references, keys, sessions, and handing values over.

The host plugins (``entrepot_airflow``, ``entrepot_dagster``, ``entrepot_kedro``) are thin layers over this package.
Nothing is imported here, because the core finds the codecs through an entry point and must not pay for the rest.
"""
