"""The hand-off as a Kedro project; the configuration environment (directory of `conf`) selects the transport."""
