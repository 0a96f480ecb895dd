"""Objects of a store as files, for programs that need files (FUSE)."""
