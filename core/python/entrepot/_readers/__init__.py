"""Files read through the store: decoded once for all processes of the host, and shared until memory is short."""
