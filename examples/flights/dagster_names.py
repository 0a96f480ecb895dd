"""The variables by which the demo tells the Dagster job what to use."""

TRANSPORT_VARIABLE = "FLIGHTS_DAGSTER_IO"  # "entrepot" or "files"
FILES_VARIABLE = "FLIGHTS_DAGSTER_FILES"  # folder of FilesystemIOManager
