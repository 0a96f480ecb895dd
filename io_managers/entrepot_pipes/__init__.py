"""Data pipes: programs hand tables to each other while they run, under names that look like files (``db://orders``)."""
