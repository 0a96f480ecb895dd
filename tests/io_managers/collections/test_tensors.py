"""A collection of tensors reads as one: in batches of rows, and as a PyTorch data set."""

from __future__ import annotations

import multiprocessing
import pickle
from typing import Any

import entrepot
import numpy as np
import pytest


def _arrays(store: entrepot.Store, lengths: list[int], shape: tuple[int, ...] = (3,)) -> entrepot.Collection:
    builder = store.collection("arrays")
    start = 0
    for index, length in enumerate(lengths):
        rows = np.arange(start, start + length, dtype=np.float32)
        builder.put(np.broadcast_to(rows.reshape(-1, *[1] * len(shape)), (length, *shape)).copy(), index=index)
        start += length
    return builder.seal()


def test_what_tensors_have_in_common(store: entrepot.Store) -> None:
    arrays = _arrays(store, [10, 0, 5], (3, 4))
    assert (arrays.kind, arrays.rows, arrays.row_shape, arrays.layout) == ("tensor", 15, (3, 4), "float32 with 3 axes")
    builder = store.collection("ragged")
    for index, shape in enumerate([(2, 3), (2, 4)]):
        builder.put(np.zeros(shape), index=index)
    ragged = builder.seal()
    assert (ragged.rows, ragged.row_shape) == (4, None)
    for view in (lambda: ragged.iter_batches(1), ragged.torch_dataset):
        with pytest.raises(entrepot.InvalidArgument, match="different shapes"):
            view()


def test_arrays_of_objects_are_values(store: entrepot.Store) -> None:
    builder = store.collection("odd")
    builder.put(np.array([{}, []], dtype=object), index=0)
    sealed = builder.seal()
    assert (sealed.kind, sealed.rows) == ("value", None)
    with pytest.raises(entrepot.InvalidArgument, match="not tensors"):
        sealed.iter_batches(1)


def test_scalars_have_no_rows(store: entrepot.Store) -> None:
    builder = store.collection("scalars")
    builder.put(np.array(1.5), index=0)
    sealed = builder.seal()
    assert (sealed.kind, sealed.rows, sealed.row_counts) == ("tensor", None, None)
    with pytest.raises(entrepot.InvalidArgument, match="no rows"):
        sealed.iter_batches(1)


@pytest.mark.parametrize("rows", [1, 4, 10, 16, 100])
def test_batches_of_one_size_across_members(store: entrepot.Store, rows: int) -> None:
    arrays = _arrays(store, [10, 0, 3, 4, 20])
    batches = list(arrays.iter_batches(rows))
    assert [len(batch) for batch in batches[:-1]] == [rows] * (len(batches) - 1)
    joined = np.concatenate(batches)
    assert joined.shape == (37, 3)
    assert joined[:, 0].tolist() == list(range(37))
    assert batches[0].flags.writeable is (rows > 10)  # a batch within one member is a view of shared memory


def test_a_data_set_is_over_rows_or_members(store: entrepot.Store) -> None:
    with pytest.raises(entrepot.InvalidArgument, match="'columns'"):
        _arrays(store, [3]).torch_dataset("columns")


def _row_sum(row: Any) -> Any:
    return row.sum()


class TestTorch:
    @pytest.fixture(autouse=True)
    def _torch(self) -> None:
        self.torch = pytest.importorskip("torch", reason="PyTorch is large: tested where it is installed")

    def test_rows(self, store: entrepot.Store) -> None:
        arrays = _arrays(store, [10, 0, 3, 4])
        data = arrays.torch_dataset()
        assert len(data) == 17
        assert [float(data[index][0]) for index in range(17)] == list(range(17))
        assert float(data[-1][0]) == 16
        items = data.__getitems__([16, 0, 11, 12])
        assert [float(item[2]) for item in items] == [16, 0, 11, 12]
        assert items[0].dtype == self.torch.float32
        for wrong in (17, -18):
            with pytest.raises(IndexError, match="17 rows"):
                data[wrong]

    def test_writing_to_an_item_changes_nothing_else(self, store: entrepot.Store) -> None:
        arrays = _arrays(store, [10, 5])
        rows, members = arrays.torch_dataset(), arrays.torch_dataset("members")
        rows[3].mul_(0)
        members[1].mul_(0)
        assert float(rows[3][0]) == 3
        assert members[1][:, 0].tolist() == [10, 11, 12, 13, 14]
        assert arrays[1][0, 0] == 10

    def test_members_and_transform(self, store: entrepot.Store) -> None:
        arrays = _arrays(store, [2, 3])
        data = arrays.torch_dataset("members", transform=_row_sum)
        assert [float(item) for item in data] == [3.0, 27.0]
        assert [float(item) for item in (arrays.torch_dataset(transform=_row_sum)[i] for i in range(2))] == [0, 3]

    @pytest.mark.parametrize("workers", [0, 2])
    def test_a_shuffled_order_for_a_loader(self, store: entrepot.Store, workers: int) -> None:
        data = _arrays(store, [40, 30, 50, 10]).torch_dataset()
        order = data.shuffled(blocks=2, seed=3)
        loader = self.torch.utils.data.DataLoader(data, batch_size=16, sampler=order, num_workers=workers)
        for _ in range(2):
            got = [int(row[0]) for batch in loader for row in batch]
            assert sorted(got) == list(range(130))
            assert got != sorted(got)
        assert len(data._member_cache) <= 2

    @pytest.mark.slow
    @pytest.mark.parametrize("method", ["fork", "spawn"])
    def test_workers(self, store: entrepot.Store, method: str) -> None:
        data = _arrays(store, [40, 30, 50]).torch_dataset()
        data[0]  # so that a member is held at the fork
        loader = self.torch.utils.data.DataLoader(
            data,
            batch_size=16,
            shuffle=True,
            num_workers=2,
            multiprocessing_context=multiprocessing.get_context(method),
        )
        for _ in range(2):
            assert sorted(int(row[0]) for batch in loader for row in batch) == list(range(120))

    def test_torch_tensors(self, store: entrepot.Store) -> None:
        builder = store.collection("tensors")
        for index in range(3):
            builder.put(self.torch.full((4, 2), index), index=index)
        sealed = builder.seal()
        assert (sealed.type, sealed.kind, sealed.rows) == ("torch.Tensor", "tensor", 12)
        assert [len(batch) for batch in sealed.iter_batches(5)] == [5, 5, 2]
        assert [int(row[0]) for row in sealed.torch_dataset()] == [0] * 4 + [1] * 4 + [2] * 4

    def test_a_data_set_is_pickled_without_data(self, store: entrepot.Store) -> None:
        data = _arrays(store, [100_000]).torch_dataset()
        data[5]
        raw = pickle.dumps(data)
        assert len(raw) < 2000
        assert float(pickle.loads(raw)[5][0]) == 5
