"""PyTorch tensors in main memory, as NumPy arrays over the same bytes.

In every copy mode, the result is a tensor over a private copy-on-write mapping of the stored bytes: PyTorch has no
read-only tensors, and writing to shared memory would kill the process. The kernel copies only pages that are written.
"""

from __future__ import annotations

from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from entrepot.codec import Codec, Decoder, Encoder, Node
from entrepot.errors import CorruptData, UnsupportedType

# Element types that NumPy lacks, viewed as integers of the same size.
_STAND_INS = {
    name: stand_in
    for name, stand_in in (
        ("bfloat16", torch.int16),
        ("float8_e4m3fn", torch.int8),
        ("float8_e5m2", torch.int8),
        ("float8_e4m3fnuz", torch.int8),
        ("float8_e5m2fnuz", torch.int8),
    )
    if hasattr(torch, name)
}


class TensorCodec(Codec):
    """``torch.Tensor``.

    params: [element type, whether it requires a gradient]; its only child is an array.
    """

    name = "torch.Tensor"

    def encode(self, value: Any, encoder: Encoder) -> Node:
        if type(value) is not torch.Tensor or value.device.type != "cpu" or value.layout != torch.strided:
            raise UnsupportedType("only dense tensors in main memory can be stored: call .cpu() or .to_dense() first")
        if value.is_quantized or value.is_conj() or value.is_neg() or value.grad_fn is not None:
            raise UnsupportedType(
                "a tensor that is quantized, a lazy conjugate, or part of a graph cannot be stored: call "
                ".dequantize(), .resolve_conj() or .detach() first"
            )
        name = str(value.dtype).removeprefix("torch.")
        plain = value.detach()
        try:
            array = (plain.view(_STAND_INS[name]) if name in _STAND_INS else plain).numpy()
        except (TypeError, RuntimeError) as error:
            raise UnsupportedType(f"a tensor of {name} cannot be stored as bytes: {error}") from error
        child = encoder.encode(array)
        return Node(self.name, self.version, [name, bool(value.requires_grad)], children=[child])

    def decode(self, node: Node, decoder: Decoder) -> Any:
        if not isinstance(node.params, list) or len(node.params) != 2 or len(node.children) != 1:
            raise CorruptData("a tensor has no element type or no array")
        name, gradient = node.params
        dtype = getattr(torch, name, None) if isinstance(name, str) else None
        if not isinstance(dtype, torch.dtype):
            raise CorruptData(f"PyTorch {torch.__version__} has no element type {name!r}: upgrade PyTorch here")
        array = decoder.private().decode(node.children[0])
        try:
            tensor = torch.from_numpy(array)
            if name in _STAND_INS and tensor.dtype == _STAND_INS[name]:
                tensor = tensor.view(dtype)
            if tensor.dtype != dtype:
                raise TypeError(f"the array has dtype {tensor.dtype}")
            return tensor.requires_grad_(bool(gradient))
        except (TypeError, ValueError, RuntimeError) as error:
            raise CorruptData(f"a tensor of {name} does not match its array: {error}") from error
