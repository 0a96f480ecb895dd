"""Collections: building, reading and prefetching them, and their stored form."""
