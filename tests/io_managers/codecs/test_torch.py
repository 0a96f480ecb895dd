"""PyTorch tensors: restored without a copy; writing to one affects no other reader."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import entrepot
import pytest
from entrepot.codec import Node, default_registry, unpack_tree
from entrepot.errors import CorruptData, UnsupportedType

torch = pytest.importorskip("torch", reason="PyTorch is large: tested where it is installed")
KINDS = ["float32", "float64", "float16", "bfloat16", "int8", "int64", "uint8", "bool", "complex64"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (100, 7), (2, 0, 3)])
def test_the_same_tensor_comes_back(put: Callable[..., Any], kind: str, shape: tuple[int, ...]) -> None:
    value = torch.ones(shape).to(getattr(torch, kind))
    restored = put(value).get()
    assert type(restored) is torch.Tensor
    assert restored.dtype == value.dtype
    assert restored.shape == value.shape
    assert torch.equal(restored, value)


def test_orders_of_axes_and_gradients(put: Callable[..., Any]) -> None:
    value = torch.arange(24.0).reshape(2, 3, 4).permute(2, 0, 1)
    restored = put(value).get()
    assert torch.equal(restored, value)
    assert restored.stride() == value.stride()
    assert put(torch.ones(3, requires_grad=True)).get().requires_grad
    assert torch.equal(put(torch.arange(10)[::3]).get(), torch.tensor([0, 3, 6, 9]))
    assert torch.equal(put(torch.ones(1).expand(1000)).get(), torch.ones(1000))


def test_nothing_is_copied_and_writing_reaches_nobody(module_daemon: Any) -> None:
    with entrepot.connect(module_daemon.address, scope="torch") as store:
        oid = store.put(torch.arange(500_000))
        assert store.info(oid).type == "torch.Tensor"
        first, other = store.get(oid), store.get(oid)
        first[7] = -1
        assert int(other[7]) == 7
        assert int(store.get(oid)[7]) == 7
        assert int(store.get(oid, copy="always")[499_999]) == 499_999


def test_what_is_not_kept_as_it_is(put: Callable[..., Any]) -> None:
    weight = torch.ones(3, requires_grad=True)
    for value in (weight * 2, torch.eye(3).to_sparse(), torch.view_as_complex(torch.ones(3, 2)).conj()):
        with pytest.raises(UnsupportedType):
            put(value)
    parameter = put(torch.nn.Parameter(torch.ones(3)), allow_pickle=True).get()
    assert isinstance(parameter, torch.nn.Parameter)


@pytest.mark.parametrize("params", [None, [], ["float32"], ["nothing", False], ["nn", False], ["int16", False], [7, 0]])
def test_damage(put: Callable[..., Any], params: Any) -> None:
    from entrepot.codec import Decoder
    from entrepot_io.codecs import torch_tensors

    stored = put(torch.ones(4))
    decoder = Decoder(default_registry(), lambda index: stored.buffers[index], len(stored.buffers))
    child = unpack_tree(stored.tree).children[0]
    with pytest.raises(CorruptData):
        torch_tensors.TensorCodec().decode(Node("torch.Tensor", 1, params, children=[child]), decoder)
