"""``Store``, the parts that it is made of, and ``connect``."""
