"""Tables and arrays as Parquet and other files, and collections of tables as datasets of such files."""
