"""scikit-learn, XGBoost and LightGBM take what NumPy or pyarrow make of arrowdev's objects."""

import pytest

import arrowdev as ad

np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")

X = np.arange(12.0).reshape(6, 2) ** 2
Y = X @ [2.0, 3.0] + 1


def columns():
    return ad.record_batch({"a": X[:, 0].copy(), "b": X[:, 1].copy()})


def test_sklearn():
    linear = pytest.importorskip("sklearn.linear_model")
    for data in (ad.tensor(X), ad.tensor(columns())):
        model = linear.LinearRegression().fit(data, ad.tensor(Y))
        assert np.allclose(model.coef_, [2, 3]) and np.allclose(model.predict(data), Y)
        assert ad.tensor(model.predict(data)).shape == (6,)
    with pytest.raises(ad.ExchangeError) as info:
        linear.LinearRegression().fit(columns(), Y)
    assert "arrowdev.tensor(x) is a matrix" in info.value.hint


def test_sklearn_sees_names_in_a_frame():
    linear = pytest.importorskip("sklearn.linear_model")
    frames = pytest.importorskip("pandas", minversion="3.0")
    model = linear.LinearRegression().fit(
        columns().into(frames.DataFrame), np.asarray(ad.array(Y))
    )
    assert model.feature_names_in_.tolist() == ["a", "b"]


def test_xgboost():
    xgboost = pytest.importorskip("xgboost")
    for data in (np.asarray(ad.tensor(X)), pa.table(columns())):
        x = xgboost.DMatrix(data, label=np.asarray(ad.tensor(Y)))
        assert x.get_data().toarray().tolist() == X.tolist()
        assert x.get_label().tolist() == Y.tolist()
    assert x.feature_names == ["a", "b"]
    missing = pa.table(ad.record_batch(pa.record_batch({"a": [1.0, None, 3.0]})))
    assert xgboost.DMatrix(missing).num_nonmissing() == 2


def test_lightgbm():
    lightgbm = pytest.importorskip("lightgbm")
    options = {"min_data_in_leaf": 1, "min_data_in_bin": 1, "verbose": -1}
    for data in (np.asarray(ad.tensor(X)), pa.table(columns())):
        x = lightgbm.Dataset(data, label=np.asarray(ad.tensor(Y)), params=options).construct()
        assert (x.num_data(), x.num_feature()) == (6, 2)
        assert x.get_label().tolist() == Y.astype("f4").tolist()
    assert x.get_feature_name() == ["a", "b"]
    whole = lightgbm.Dataset(data, label=pa.chunked_array([ad.array(Y)]), params=options)
    assert whole.construct().get_label().tolist() == Y.astype("f4").tolist()
