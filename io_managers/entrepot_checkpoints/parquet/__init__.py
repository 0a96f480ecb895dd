"""Tables as Parquet files, and collections of tables as Parquet datasets."""
