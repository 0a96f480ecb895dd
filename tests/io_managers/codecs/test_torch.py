"""PyTorch tensors: restored without a copy; writing to one affects no other reader."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import entrepot
import pytest
from entrepot.codec import Node, default_registry, unpack_tree
from entrepot.errors import CorruptData, UnsupportedType
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

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


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data(), copy=st.sampled_from(["never", "on_write", "always"]))
def test_any_tensor_and_view_comes_back(put: Callable[..., Any], data: Any, copy: Any) -> None:
    kind = getattr(torch, data.draw(st.sampled_from(KINDS)))
    shape = data.draw(st.lists(st.integers(0, 6), max_size=4))
    count = int(torch.Size(shape).numel())
    numbers = data.draw(st.lists(st.integers(-100, 100), min_size=count, max_size=count))
    value = torch.tensor(numbers, dtype=torch.int64).reshape(shape).to(kind)
    view = value.permute(data.draw(st.permutations(range(value.ndim))))
    if view.ndim:
        view = view[data.draw(st.sampled_from([slice(None), slice(1, None), slice(None, None, 2)]))]
    if kind.is_floating_point:
        value.requires_grad_(data.draw(st.booleans()))
    for tensor in (value, view):
        back = put({"a": [tensor]}).get(copy)["a"][0]
        assert (type(back), back.dtype, back.shape) == (type(tensor), tensor.dtype, tensor.shape)
        assert back.requires_grad == tensor.requires_grad
        assert torch.equal(back, tensor)


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
