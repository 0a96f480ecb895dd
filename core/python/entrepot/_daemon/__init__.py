"""The daemon as seen from outside: settings, start, processes, Kubernetes environment."""
