"""What people look at: a page (``entrepot ui``) and a terminal view (``entrepot top``) of a store."""
