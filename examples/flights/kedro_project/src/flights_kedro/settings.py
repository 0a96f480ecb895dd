"""Settings of the project."""

from examples.flights.measure.kedro_times import TransportTimes

HOOKS = (TransportTimes(),)
CONFIG_LOADER_ARGS = {"base_env": "base", "default_run_env": "entrepot"}
