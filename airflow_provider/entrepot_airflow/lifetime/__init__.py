"""How long the values of DAG runs are kept after the runs have ended."""
