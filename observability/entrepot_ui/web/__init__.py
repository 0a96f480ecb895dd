"""The page: its server, over HTTP on loopback."""
