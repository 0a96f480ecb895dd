"""Stored objects as files of a folder, for programs that need files: ``entrepot mount`` (docs/mount.md).

Loads neither the FUSE library nor anything heavy; ``commands`` has the subcommands.
"""
