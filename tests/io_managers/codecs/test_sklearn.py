"""scikit-learn models: pickled with their version, their arrays out of band."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from entrepot.codec import CopyMode, Node, pack_tree, unpack_tree
from entrepot.errors import CorruptData, UnsupportedType, VersionMismatch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.base import BaseEstimator, clone
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.exceptions import InconsistentVersionWarning
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import Ridge, SGDClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeRegressor
from sklearn.utils import all_estimators

CHANCE = np.random.default_rng(1)
ROWS = CHANCE.normal(size=(2000, 20))
LABELS = (ROWS[:, 0] + ROWS[:, 1] > 0).astype(int)
OUT_OF_BAND = 4096


class Fragile(BaseEstimator):  # type: ignore[misc]
    """A model that cannot be unpickled."""

    def __setstate__(self, state: Any) -> None:
        raise ValueError("state of another version")


def arrays_in(value: Any, seen: set[int] | None = None) -> list[Any]:
    """The arrays of at least 4 KiB that a model holds, without those inside compiled classes."""
    seen = set() if seen is None else seen
    if id(value) in seen:
        return []
    seen.add(id(value))
    if isinstance(value, np.ndarray) and value.dtype != object:
        return [value] if value.nbytes >= OUT_OF_BAND else []
    parts: list[Any] = []
    if isinstance(value, dict):
        parts = list(value.values())
    elif isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.dtype == object):
        parts = list(value)
    elif hasattr(value, "__dict__") and not isinstance(value, type):
        parts = list(vars(value).values())
    return [array for part in parts for array in arrays_in(part, seen)]


def unshared(stored: Any, model: Any) -> list[Any]:
    """The arrays of a model that was read which are copies."""
    return [array for array in arrays_in(model) if not stored.holds(array.__array_interface__["data"][0])]


@pytest.mark.parametrize("copy", ["never", "on_write", "always"])
def test_a_forest_of_a_hundred_trees(put: Any, copy: CopyMode) -> None:
    model = RandomForestClassifier(100, random_state=1, n_jobs=1).fit(ROWS, LABELS)
    stored = put(model, allow_pickle=True)
    assert stored.codec == "sklearn.model"
    trees = sum(
        array.nbytes
        for tree in model.estimators_
        for array in (tree.tree_.__getstate__()["nodes"], tree.tree_.__getstate__()["values"])
        if array.nbytes >= OUT_OF_BAND
    )
    assert trees > 1_000_000
    assert stored.nbytes >= trees
    stream = stored.buffers[0]
    assert len(stream) < 200_000 + 100 * OUT_OF_BAND, "the pickle itself holds no large array"
    back = stored.get(copy)
    assert np.array_equal(back.predict_proba(ROWS), model.predict_proba(ROWS))


MODELS: dict[str, Any] = {
    "linear": (Ridge(), np.repeat(ROWS, 40, axis=1), LABELS),
    "pipeline": (make_pipeline(StandardScaler(), KNeighborsClassifier(3)), ROWS, LABELS),
    "boosting": (HistGradientBoostingClassifier(max_iter=20, max_leaf_nodes=200), ROWS, LABELS),
}


@pytest.mark.parametrize("name", MODELS)
def test_arrays_are_not_copied(put: Any, name: str) -> None:
    unfitted, rows, labels = MODELS[name]
    model: Any = clone(unfitted)
    model.fit(rows, labels)
    stored = put(model, allow_pickle=True)
    back = stored.get()
    assert np.array_equal(back.predict(rows), model.predict(rows))
    assert arrays_in(back), "there is something to look at"
    assert unshared(stored, back) == []
    assert unshared(stored, model), "the control: the original is elsewhere"


positive = st.floats(1e-6, 1e3)
GENERATED: list[tuple[Any, dict[str, st.SearchStrategy[Any]]]] = [
    (Ridge, {"alpha": positive, "fit_intercept": st.booleans(), "solver": st.sampled_from(["auto", "svd", "lsqr"])}),
    (
        DecisionTreeRegressor,
        {"max_depth": st.none() | st.integers(1, 12), "min_samples_leaf": st.integers(1, 9) | st.floats(0.01, 0.4)},
    ),
    (
        SGDClassifier,
        {
            "loss": st.sampled_from(["hinge", "log_loss", "huber"]),
            "alpha": positive,
            "class_weight": st.none() | st.just("balanced") | st.fixed_dictionaries({0: positive, 1: positive}),
        },
    ),
    (KNeighborsClassifier, {"n_neighbors": st.integers(1, 20), "weights": st.sampled_from(["uniform", "distance"])}),
    (StandardScaler, {"with_mean": st.booleans(), "with_std": st.booleans()}),
    (
        OneHotEncoder,
        {
            "sparse_output": st.booleans(),
            "dtype": st.sampled_from([np.float32, np.int8]),
            "handle_unknown": st.just("ignore"),
            "min_frequency": st.none() | st.integers(1, 50) | st.floats(0.01, 0.5),
        },
    ),
]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data(), copy=st.sampled_from(["never", "on_write", "always"]))
def test_any_parameters_and_sizes_come_back(put: Any, data: Any, copy: CopyMode) -> None:
    cls, options = data.draw(st.sampled_from(GENERATED))
    model = cls(**data.draw(st.fixed_dictionaries({}, optional=options)))
    if "random_state" in model.get_params():
        model.set_params(random_state=data.draw(st.integers(0, 99)))
    unfitted = put(model, allow_pickle=True).get(copy, allow_pickle=True)
    assert (type(unfitted), unfitted.get_params()) == (type(model), model.get_params())
    first, count = data.draw(st.integers(0, 500)), data.draw(st.integers(40, 400))
    rows = ROWS[first : first + count, : data.draw(st.integers(1, 20))].round(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that some did not converge
        model.fit(rows, LABELS[first : first + count])
    stored = put([model, rows], allow_pickle=True)
    back, its_rows = stored.get(copy)
    assert (type(back), back.get_params()) == (type(model), model.get_params())
    assert unshared(stored, back) == []
    method = "transform" if hasattr(model, "transform") else "predict"
    expected, got = getattr(model, method)(rows), getattr(back, method)(its_rows)
    if hasattr(expected, "toarray"):
        expected, got = expected.toarray(), got.toarray()
    assert got.dtype == expected.dtype
    np.testing.assert_array_equal(got, expected)


def test_sparse_text_and_columns_of_a_frame(put: Any) -> None:
    texts = [f"word{number % 900} word{number % 7} x{number}" for number in range(1000)]
    vectorizer = TfidfVectorizer().fit(texts)
    stored = put(vectorizer, allow_pickle=True)
    back = stored.get()
    assert (back.transform(texts) != vectorizer.transform(texts)).nnz == 0
    assert unshared(stored, back) == []
    frame = pd.DataFrame({"a": ROWS[:, 0], "b": [f"c{number % 9}" for number in range(len(ROWS))]})
    columns = ColumnTransformer([("s", StandardScaler(), ["a"]), ("o", OneHotEncoder(), ["b"])]).fit(frame)
    back = put(columns, allow_pickle=True).get()
    assert (back.transform(frame) != columns.transform(frame)).nnz == 0


def test_references_between_models_are_kept(put: Any) -> None:
    pipeline = make_pipeline(StandardScaler(), Ridge()).fit(ROWS, LABELS)
    back = put({"all": pipeline, "first": pipeline[0]}, allow_pickle=True).get()
    assert back["all"][0] is back["first"]
    nested = put([pipeline, ROWS], allow_pickle=True)
    assert np.array_equal(nested.get()[0].predict(ROWS), pipeline.predict(ROWS))


def test_pickling_is_needed(put: Any) -> None:
    for value in (Ridge(), [Ridge()]):
        with pytest.raises(UnsupportedType, match=r"pickl"):
            put(value)
    stored = put(Ridge(), allow_pickle=True)
    with pytest.raises(UnsupportedType, match="ENTREPOT_ALLOW_PICKLE"):
        stored.get(allow_pickle=False)


def test_another_version_warns_as_scikit_learn_does(put: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as older:
        older.setattr("sklearn.base.__version__", "1.0.2")
        stored = put(make_pipeline(StandardScaler(), Ridge()).fit(ROWS, LABELS), allow_pickle=True)
    with pytest.warns(InconsistentVersionWarning, match=r"1\.0\.2"):
        stored.get()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(InconsistentVersionWarning):  # not CorruptData: the user wants the warning as an error
            stored.get()


def test_a_model_that_another_version_cannot_read(put: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = put(Fragile(), allow_pickle=True)
    with pytest.raises(CorruptData, match="state of another version"):
        stored.get()
    with monkeypatch.context() as older:
        older.setattr("sklearn.__version__", "1.0.2")
        stored = put(Fragile(), allow_pickle=True)
    with pytest.raises(VersionMismatch, match=r"Fragile.*scikit-learn 1\.0\.2 cannot be read.*fit the model again"):
        stored.get()
    with pytest.raises(UnsupportedType, match="ENTREPOT_ALLOW_PICKLE"):
        stored.get(allow_pickle=False)


@pytest.mark.parametrize("params", [None, [], ["a"], ["a", "b", "c"]])
def test_damage(put: Any, params: Any) -> None:
    stored = put(Ridge(), allow_pickle=True)
    root = unpack_tree(stored.tree)
    root.params = params
    stored.tree = pack_tree(root)
    with pytest.raises(CorruptData):
        stored.get()
    for children in ([], [Node("python.data", 1, b"\x01")]):
        root = unpack_tree(stored.tree)
        root.params, root.children = ["a", "b"], children
        stored.tree = pack_tree(root)
        with pytest.raises(CorruptData):
            stored.get()


def fitted(name: str, cls: Any) -> Any:
    """The estimator, fitted to data that it accepts; None if it needs arguments or other data."""
    rows, labels = np.abs(ROWS[:100]), LABELS[:100]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return cls().fit(rows, labels)
    except (TypeError, ValueError, ImportError, AttributeError):
        return None


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("step", "least"),
    [
        pytest.param(10, 15, id="every tenth"),
        pytest.param(1, 151, id="all", marks=pytest.mark.exhaustive),
    ],
)
def test_estimators_work_on_read_only_arrays(put: Any, step: int, least: int) -> None:
    checked, differing = 0, []
    for name, cls in all_estimators()[::step]:
        model = fitted(name, cls)
        if model is None:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            stored = put(model, allow_pickle=True)
            back = stored.get()
            rows = np.abs(ROWS[:100])
            for method in ("predict", "transform", "decision_function", "predict_proba"):
                if not hasattr(model, method):
                    continue
                try:
                    expected = getattr(model, method)(rows)
                except (TypeError, ValueError, AttributeError):
                    continue
                got = getattr(back, method)(rows)
                if hasattr(expected, "toarray"):
                    expected, got = expected.toarray(), got.toarray()
                if not np.allclose(np.asarray(got, float), np.asarray(expected, float), equal_nan=True):
                    differing.append(f"{name}.{method}")
                checked += 1
    assert differing == []
    assert checked >= least
