"""The broker: pipes for programs outside Python, through a Unix socket. See ``docs/formats/pipe-protocol.md``."""
