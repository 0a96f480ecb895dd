"""``entrepot top``: a store in a terminal."""
