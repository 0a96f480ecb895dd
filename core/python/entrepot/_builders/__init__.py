"""Tables that are built in the store part by part, and objects made of others by replacing columns."""
