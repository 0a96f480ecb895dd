"""The job as a Kedro project; the folder of `conf` that it runs with names the transport."""
