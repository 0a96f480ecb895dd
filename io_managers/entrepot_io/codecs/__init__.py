"""Codecs of NumPy, Arrow, pandas, Polars, PyTorch, JAX, SciPy, scikit-learn and xarray.

Importing this package imports none of these libraries: the specs name types and codecs as strings, and the registry
imports a codec's module when a value of its type is put or an object of that codec is read.
"""

from __future__ import annotations

from entrepot.codec import CodecSpec

_NUMPY = "entrepot_io.codecs.numpy_arrays"
_ARROW = "entrepot_io.codecs.arrow_values"
_PANDAS_ARRAYS = "entrepot_io.codecs.pandas_arrays"
_PANDAS_INDEX = "entrepot_io.codecs.pandas_index"
_PANDAS_FRAMES = "entrepot_io.codecs.pandas_frames"
_POLARS = "entrepot_io.codecs.polars_frames"
_TORCH = "entrepot_io.codecs.torch_tensors"
_DLPACK = "entrepot_io.codecs.dlpack_arrays"
_SCIPY = "entrepot_io.codecs.scipy_sparse"
_SKLEARN = "entrepot_io.codecs.sklearn_models"
_XARRAY = "entrepot_io.codecs.xarray_datasets"

_DLPACK_TYPES = (
    "array_api_strict._array_object:Array",
    "jax._src.array:ArrayImpl",
    "jaxlib._jax:ArrayImpl",
    "jaxlib.xla_extension:ArrayImpl",
)
_SPARSE_TYPES = tuple(
    f"scipy.sparse._{form}:{form}_{kind}"
    for form in ("csr", "csc", "bsr", "coo", "dia", "lil", "dok")
    for kind in ("array", "matrix")
)

# pandas 3 reports the public module of its classes; pandas 2 reports the module that defines them.
_PANDAS_ARRAY_TYPES = (
    *(
        f"pandas.arrays:{kind}"
        for kind in (
            "ArrowExtensionArray",
            "ArrowStringArray",
            "BooleanArray",
            "DatetimeArray",
            "FloatingArray",
            "IntegerArray",
            "IntervalArray",
            "NumpyExtensionArray",
            "PeriodArray",
            "StringArray",
            "TimedeltaArray",
        )
    ),
    "pandas:Categorical",
    "pandas.core.arrays.arrow.array:ArrowExtensionArray",
    "pandas.core.arrays.boolean:BooleanArray",
    "pandas.core.arrays.categorical:Categorical",
    "pandas.core.arrays.datetimes:DatetimeArray",
    "pandas.core.arrays.floating:FloatingArray",
    "pandas.core.arrays.integer:IntegerArray",
    "pandas.core.arrays.interval:IntervalArray",
    "pandas.core.arrays.numpy_:NumpyExtensionArray",
    "pandas.core.arrays.period:PeriodArray",
    "pandas.core.arrays.string_:StringArray",
    "pandas.core.arrays.string_:StringArrayNumpySemantics",
    "pandas.core.arrays.string_arrow:ArrowStringArray",
    "pandas.core.arrays.string_arrow:ArrowStringArrayNumpySemantics",
    "pandas.core.arrays.timedeltas:TimedeltaArray",
)
_PANDAS_INDEX_TYPES = (
    *(
        f"pandas:{kind}"
        for kind in (
            "CategoricalIndex",
            "DatetimeIndex",
            "Index",
            "IntervalIndex",
            "MultiIndex",
            "PeriodIndex",
            "RangeIndex",
            "TimedeltaIndex",
        )
    ),
    "pandas.core.indexes.base:Index",
    "pandas.core.indexes.category:CategoricalIndex",
    "pandas.core.indexes.datetimes:DatetimeIndex",
    "pandas.core.indexes.interval:IntervalIndex",
    "pandas.core.indexes.multi:MultiIndex",
    "pandas.core.indexes.period:PeriodIndex",
    "pandas.core.indexes.range:RangeIndex",
    "pandas.core.indexes.timedeltas:TimedeltaIndex",
)


def codec_specs() -> list[CodecSpec]:
    """The codecs of this package, for the entry-point group ``entrepot.codecs``."""
    return [
        CodecSpec(
            "numpy.ndarray",
            f"{_NUMPY}:ArrayCodec",
            (
                "numpy:ndarray",
                "numpy:memmap",
                "numpy:matrix",
                "numpy.matrixlib.defmatrix:matrix",
                "numpy.rec:recarray",
                "numpy:recarray",
            ),
        ),
        CodecSpec("numpy.dtype", f"{_NUMPY}:DtypeCodec", base_types=("numpy:dtype",)),
        CodecSpec("numpy.generic", f"{_NUMPY}:ScalarCodec", base_types=("numpy:generic",)),
        CodecSpec(
            "numpy.ma.MaskedArray", f"{_NUMPY}:MaskedArrayCodec", ("numpy.ma:MaskedArray", "numpy.ma.core:MaskedArray")
        ),
        CodecSpec("arrow.buffer", f"{_ARROW}:BufferCodec", ("pyarrow.lib:Buffer", "pyarrow.lib:ResizableBuffer")),
        CodecSpec("arrow.scalar", f"{_ARROW}:ScalarCodec", base_types=("pyarrow.lib:Scalar",)),
        CodecSpec("arrow.type", f"{_ARROW}:DataTypeCodec", base_types=("pyarrow.lib:DataType",)),
        CodecSpec("arrow.field", f"{_ARROW}:FieldCodec", ("pyarrow.lib:Field",)),
        CodecSpec("arrow.schema", f"{_ARROW}:SchemaCodec", ("pyarrow.lib:Schema",)),
        CodecSpec("arrow.array", f"{_ARROW}:ArrayCodec", base_types=("pyarrow.lib:Array",)),
        CodecSpec("arrow.chunked_array", f"{_ARROW}:ChunkedArrayCodec", ("pyarrow.lib:ChunkedArray",)),
        CodecSpec("arrow.record_batch", f"{_ARROW}:RecordBatchCodec", ("pyarrow.lib:RecordBatch",)),
        CodecSpec("arrow.table", f"{_ARROW}:TableCodec", ("pyarrow.lib:Table",)),
        CodecSpec("pandas.array", f"{_PANDAS_ARRAYS}:ArrayCodec", _PANDAS_ARRAY_TYPES),
        CodecSpec("pandas.objects", f"{_PANDAS_ARRAYS}:ObjectArrayCodec"),
        CodecSpec("pandas.Index", f"{_PANDAS_INDEX}:IndexCodec", _PANDAS_INDEX_TYPES),
        CodecSpec("pandas.Series", f"{_PANDAS_FRAMES}:SeriesCodec", ("pandas:Series", "pandas.core.series:Series")),
        CodecSpec(
            "pandas.DataFrame",
            f"{_PANDAS_FRAMES}:DataFrameCodec",
            ("pandas:DataFrame", "pandas.core.frame:DataFrame"),
        ),
        CodecSpec("polars.DataFrame", f"{_POLARS}:DataFrameCodec", ("polars.dataframe.frame:DataFrame",)),
        CodecSpec("polars.Series", f"{_POLARS}:SeriesCodec", ("polars.series.series:Series",)),
        CodecSpec("torch.Tensor", f"{_TORCH}:TensorCodec", ("torch:Tensor",)),
        CodecSpec("dlpack.array", f"{_DLPACK}:ArrayCodec", _DLPACK_TYPES),
        CodecSpec("scipy.sparse", f"{_SCIPY}:SparseCodec", _SPARSE_TYPES),
        CodecSpec("sklearn.model", f"{_SKLEARN}:ModelCodec", base_types=("sklearn.base:BaseEstimator",)),
        CodecSpec("xarray.Variable", f"{_XARRAY}:VariableCodec", ("xarray.core.variable:Variable",)),
        CodecSpec("xarray.DataArray", f"{_XARRAY}:DataArrayCodec", ("xarray.core.dataarray:DataArray",)),
        CodecSpec("xarray.Dataset", f"{_XARRAY}:DatasetCodec", ("xarray.core.dataset:Dataset",)),
        CodecSpec("polars.LazyFrame", f"{_POLARS}:LazyFrameCodec", ("polars.lazyframe.frame:LazyFrame",)),
    ]
