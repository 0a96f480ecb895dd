"""The flights job with the plug pulled in its middle, on three hosts; see README.md."""
