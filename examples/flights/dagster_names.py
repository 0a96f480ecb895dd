"""Environment variables with which the demo configures the Dagster job."""

TRANSPORT_VARIABLE = "FLIGHTS_DAGSTER_IO"  # "entrepot" or "files"
FILES_VARIABLE = "FLIGHTS_DAGSTER_FILES"  # directory of FilesystemIOManager
