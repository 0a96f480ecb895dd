"""The fsspec file system ``entrepot://``: the named objects of a store as files (docs/filesystem.md).

fsspec finds :class:`~entrepot_io.filesystem.file_system.EntrepotFileSystem` through the entry-point group
``fsspec.specs``; nothing else imports this package.
"""
