"""xarray's variables, data arrays and datasets: their arrays as NumPy's or pandas' codecs store them, indexes included.

Only data is stored. Variables that xarray has not yet read from their file are read by the put; those over Dask arrays
are plans, and refused: computing them may take more memory than there is, which their owner has to decide. Variables
over arrays of other libraries, and indexes other than pandas', are left to pickle.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from entrepot.codec import Decoder, Encoder, NeverPickled, Node
from entrepot.errors import UnsupportedType
from xarray.indexes import PandasIndex, PandasMultiIndex

from entrepot_io.codecs.pandas_arrays import decode_values, encode_values
from entrepot_io.codecs.pandas_index import decode_index
from entrepot_io.codecs.validation import CheckedCodec, child, damaged, sizes


class VariableCodec(CheckedCodec):
    """``xarray.Variable``. params: the shape if the data are Python objects, else None; children: [dimensions,
    attributes, encoding], data.
    """

    name = "xarray.Variable"

    def encode(self, value: Any, encoder: Encoder) -> Node:
        data = _data_of(value)
        header = encoder.encode([list(value.dims), dict(value.attrs), dict(value.encoding)])
        if isinstance(data, np.ndarray) and data.dtype == object:
            return Node(
                self.name, self.version, list(data.shape), children=[header, encode_values(data.reshape(-1), encoder)]
            )
        return Node(self.name, self.version, children=[header, encoder.encode(data)])

    def rebuild(self, node: Node, decoder: Decoder) -> Any:
        dims, attrs, encoding = _header(node, decoder, 3)
        if node.params is None:
            data = decoder.decode(child(node, 1))
        else:
            shape = sizes(node, node.params)
            data = decode_values(child(node, 1), decoder, math.prod(shape)).reshape(shape)
        if isinstance(data, np.ndarray):
            # xarray would copy read-only times, and look for times among objects, unless told that all is well.
            return xr.Variable(dims, data, attrs, encoding, fastpath=True)
        if not isinstance(data, pd.api.extensions.ExtensionArray):
            raise damaged(node, f"expected an array, found {type(data).__name__}")
        return xr.Variable(dims, data, attrs, encoding)


class DataArrayCodec(CheckedCodec):
    """``xarray.DataArray``. params: as :class:`_Coordinates`; children: [name, whether it is a coordinate of itself,
    names of coordinates and indexes], the variable unless it is such a coordinate, those of the coordinates.
    """

    name = "xarray.DataArray"

    def encode(self, value: Any, encoder: Encoder) -> Node:
        is_coordinate = isinstance(value.variable, xr.IndexVariable) and value.name in value.coords
        coordinates = _Coordinates.of(value)
        header = encoder.encode([value.name, is_coordinate, *coordinates.header()])
        children = [header] if is_coordinate else [header, encoder.encode(value.variable.to_base_variable())]
        return Node(self.name, self.version, children=children + coordinates.encode(encoder))

    def rebuild(self, node: Node, decoder: Decoder) -> Any:
        name, is_coordinate, *header = _header(node, decoder, 5)
        coordinates = _decode_coordinates(node, decoder, header, 1 if is_coordinate else 2)
        if is_coordinate:
            return coordinates[name]
        variable = _decode_variable(child(node, 1), decoder)
        array = xr.DataArray(variable, coords=coordinates, name=name)
        array.encoding = variable.encoding
        return array


class DatasetCodec(CheckedCodec):
    """``xarray.Dataset``. children: [attributes, encoding, names of data variables, names of coordinates and indexes],
    the data variables, the coordinates.
    """

    name = "xarray.Dataset"

    def encode(self, value: Any, encoder: Encoder) -> Node:
        coordinates = _Coordinates.of(value)
        names = list(value.data_vars)
        header = encoder.encode([dict(value.attrs), dict(value.encoding), names, *coordinates.header()])
        variables = [encoder.encode(value.variables[name]) for name in names]
        return Node(self.name, self.version, children=[header, *variables, *coordinates.encode(encoder)])

    def rebuild(self, node: Node, decoder: Decoder) -> Any:
        attrs, encoding, names, *header = _header(node, decoder, 6)
        if not isinstance(names, list):
            raise damaged(node, "its names are not a list")
        variables = [_decode_variable(child(node, 1 + number), decoder) for number in range(len(names))]
        coordinates = _decode_coordinates(node, decoder, header, 1 + len(names))
        dataset = xr.Dataset(dict(zip(names, variables, strict=True)), coords=coordinates, attrs=attrs)
        if list(dataset.data_vars) != names:
            raise damaged(node, "a name occurs twice")
        dataset.encoding = encoding
        return dataset


@dataclass
class _Coordinates:
    """The coordinates of a value.

    Header: the names in order; those of coordinates without an index; for each index, its kind, dimension, names of
    coordinates, and the NumPy dtypes of these (None: xarray's default). Children: the variables of coordinates without
    an index, in that order; for each index, the pandas index, and a list of [attributes, encoding] of its coordinates.
    """

    order: list[Hashable]
    plain: dict[Hashable, Any]
    indexes: list[tuple[Any, dict[Hashable, Any]]]

    @classmethod
    def of(cls, value: Any) -> _Coordinates:
        indexes = value.xindexes.group_by_index()
        for index, _ in indexes:
            if type(index) not in (PandasIndex, PandasMultiIndex):
                raise UnsupportedType(
                    f"an xarray value with a {type(index).__qualname__} needs pickling: drop that index "
                    "(drop_indexes), or allow pickling"
                )
        indexed = {name for _, variables in indexes for name in variables}
        plain = {name: value.coords[name].variable for name in value.coords if name not in indexed}
        return cls(list(value.coords), plain, indexes)

    def header(self) -> list[Any]:
        described = [
            [
                "multi" if isinstance(index, PandasMultiIndex) else "pandas",
                index.dim,
                list(variables),
                [_coordinate_dtype(index, name) for name in variables],
            ]
            for index, variables in self.indexes
        ]
        return [self.order, list(self.plain), described]

    def encode(self, encoder: Encoder) -> list[Node]:
        children = [encoder.encode(variable.to_base_variable()) for variable in self.plain.values()]
        for index, variables in self.indexes:
            children.append(encoder.encode(index.index))
            details = [[dict(variable.attrs), dict(variable.encoding)] for variable in variables.values()]
            children.append(encoder.encode(details))
        return children


def _decode_coordinates(node: Node, decoder: Decoder, header: list[Any], first: int) -> Any:
    order, plain, described = header
    if len(node.children) != first + len(plain) + 2 * len(described):
        raise damaged(node, f"it has {len(node.children)} children, which do not match its coordinates")
    variables: dict[Hashable, Any] = {}
    indexes: dict[Hashable, Any] = {}
    for name in plain:
        variables[name] = _decode_variable(child(node, first), decoder)
        first += 1
    for kind, dim, names, dtypes in described:
        labels = decode_index(child(node, first), decoder)
        index = _index(node, kind, labels, dim, dict(zip(names, dtypes, strict=True)))
        made = index.create_variables()
        if set(made) != set(names):
            raise damaged(node, f"its index has the coordinates {list(made)}, expected {names}")
        for name, (attrs, encoding) in zip(names, decoder.decode(child(node, first + 1)), strict=True):
            made[name].attrs, made[name].encoding = attrs, encoding
            variables[name], indexes[name] = made[name], index
        first += 2
    if set(order) != set(variables):
        raise damaged(node, "its coordinate order names coordinates that it does not have")
    return xr.Coordinates({name: variables[name] for name in order}, indexes={name: indexes[name] for name in indexes})


def _index(node: Node, kind: Any, labels: Any, dim: Any, dtypes: dict[Hashable, Any]) -> Any:
    if kind == "multi":
        if not isinstance(labels, pd.MultiIndex):
            raise damaged(node, "its index has no levels")
        levels = {name: dtype for name, dtype in dtypes.items() if name != dim and dtype is not None}
        return PandasMultiIndex(labels, dim, level_coords_dtype=levels if len(levels) == labels.nlevels else None)
    if kind != "pandas" or isinstance(labels, pd.MultiIndex) or len(dtypes) != 1:
        raise damaged(node, f"unknown kind of index {kind!r}")
    return PandasIndex(labels, dim, coord_dtype=next(iter(dtypes.values())))


def _coordinate_dtype(index: Any, name: Hashable) -> Any:
    dtype = index.level_coords_dtype.get(name) if isinstance(index, PandasMultiIndex) else index.coord_dtype
    return dtype if isinstance(dtype, np.dtype) and not dtype.hasobject else None


def _data_of(variable: Any) -> Any:
    data = variable.data  # reads what is still in a file
    if hasattr(data, "__dask_graph__"):
        raise NeverPickled(
            "a variable over a Dask array is a plan, not data: call .compute() (or .load()) on the xarray object "
            "before it is put, or put its blocks as a collection"
        )
    if type(data) is np.ndarray or isinstance(data, pd.api.extensions.ExtensionArray):
        return data
    raise UnsupportedType(
        f"a variable over a {type(data).__module__}.{type(data).__qualname__} needs pickling: convert it by .as_numpy()"
    )


def _decode_variable(node: Node, decoder: Decoder) -> Any:
    variable = decoder.decode(node)
    if not isinstance(variable, xr.Variable):
        raise damaged(node, f"expected a variable, found {type(variable).__name__}")
    return variable


def _header(node: Node, decoder: Decoder, count: int) -> list[Any]:
    header = decoder.decode(child(node, 0))
    if not isinstance(header, list) or len(header) != count:
        raise damaged(node, f"its first child is not a list of {count}")
    return header
