"""Everything that this plugin uses of Kedro beyond its documented interface."""
