"""The job of the failover example as a Kedro project. The policy is in force because ENTREPOT_POLICY is set."""
