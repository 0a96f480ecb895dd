"""Three workflows on a cluster of four hosts, each stage with processes of its own that hand data to the next ones."""
