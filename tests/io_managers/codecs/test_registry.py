"""Codec lookup works by name only, so that no heavy library is imported before it is needed."""

from __future__ import annotations

import importlib
import subprocess
import sys
from importlib import metadata
from typing import Any

import pytest
from entrepot.codec import ENTRY_POINT_GROUP, Codec, CodecRegistry, Decoder
from entrepot.errors import CorruptData
from entrepot_io.codecs import codec_specs


@pytest.mark.parametrize("spec", codec_specs(), ids=lambda spec: spec.name)
def test_every_spec_leads_to_its_codec(spec: Any) -> None:
    if spec.name.startswith("torch."):
        pytest.importorskip("torch", reason="PyTorch is large: tested where it is installed")
    module, _, name = spec.target.partition(":")
    codec = getattr(importlib.import_module(module), name)
    assert issubclass(codec, Codec)
    assert codec.name == spec.name


def test_names_and_types_have_one_owner() -> None:
    specs = codec_specs()
    names = [spec.name for spec in specs]
    types = [kind for spec in specs for kind in (*spec.types, *spec.base_types)]
    assert len(names) == len(set(names))
    assert len(types) == len(set(types))


def test_nothing_heavy_is_imported_before_a_value_needs_it() -> None:
    script = """
import sys
from entrepot._codecs.builtin import codec_specs as builtin_specs
from entrepot.codec import CodecRegistry, encode_value
from entrepot_io.codecs import codec_specs
registry = CodecRegistry([*builtin_specs(), *codec_specs()], entry_points=False)
encode_value({"a": [1, (2.5, "x")], "b": b"y" * 10_000}, registry)
encode_value(object, registry)
heavy = {"numpy", "pandas", "pyarrow", "polars", "scipy", "sklearn", "xarray", "jax"} & set(sys.modules)
assert not heavy, heavy
import numpy
encode_value(numpy.arange(1000), registry)
heavy = {"pandas", "pyarrow", "polars", "scipy", "sklearn", "xarray", "jax"} & set(sys.modules)
assert not heavy, heavy
"""
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stderr


def test_codecs_of_imported_libraries_are_imported_ahead() -> None:
    script = """
import sys
import numpy
from entrepot.codec import default_registry
default_registry().import_loaded()
codecs = {name.rpartition(".")[2] for name in sys.modules if name.startswith("entrepot_io.codecs.")}
assert "numpy_arrays" in codecs, codecs
assert not {"pandas_frames", "polars_frames", "arrow_values"} & codecs, codecs
assert not {"pandas", "polars", "pyarrow", "torch"} & set(sys.modules)
"""
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stderr


def test_the_entry_point_leads_here() -> None:
    registered = metadata.entry_points(group=ENTRY_POINT_GROUP)
    if not registered:
        pytest.skip("the package is on the path, but not installed")
    assert "pandas.DataFrame" in CodecRegistry().names()


def test_private_buffers_may_be_written_whatever_the_mode() -> None:
    stored = [b"abc"]
    reading = Decoder(CodecRegistry(), stored.__getitem__, 1, store=stored)
    private = reading.private()
    assert (reading.writable, private.writable, private.store) == (False, True, stored)
    memoryview(private.buffer(0))[:1] = b"x"
    assert stored == [b"abc"]
    assert private.private() is private
    images = [bytearray(2)]
    given = Decoder(CodecRegistry(), stored.__getitem__, 1, private=images.__getitem__)
    assert given.private().buffer(0) is images[0]
    with pytest.raises(CorruptData):
        given.private().buffer(1)
