"""Moves objects between the stores of a cluster: from shared memory to a socket to shared memory."""
