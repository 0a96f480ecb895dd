"""The flights job with a process killed in the middle, on three orchestrators; see README.md."""
