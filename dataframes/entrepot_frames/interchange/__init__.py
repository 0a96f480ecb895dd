"""Collections of the store as Dask DataFrames, Dask arrays and Ray Data sets, and the other way."""
