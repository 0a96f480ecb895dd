"""A pipeline in pods that follow their data, on a real control plane with stores of its nodes on this machine."""
