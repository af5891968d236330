"""The extensions of the page "C API" are built as a user would, and run."""

from pathlib import Path

import extension
import pytest

import arrowdev as ad

FOLDER = Path(__file__).resolve().parent.parent.parent / "docs" / "c_api"

np = pytest.importorskip("numpy")


@pytest.fixture(scope="module")
def columns():
    return extension.load(extension.build(FOLDER / "columns.c"))


@pytest.fixture(scope="module")
def batches(tmp_path_factory):
    pytest.importorskip("Cython")
    from Cython.Compiler.Main import CompilationOptions, compile

    target = tmp_path_factory.mktemp("cython") / "batches.c"
    options = CompilationOptions(output_file=str(target))
    result = compile(str(FOLDER / "batches.pyx"), options)
    assert result.num_errors == 0
    # What Cython writes is not clean with -Wpedantic.
    return extension.load(extension.build(target, flags=["-Wall"]))


@pytest.fixture(scope="module")
def tensors():
    pybind11 = pytest.importorskip("pybind11")
    more = ["-isystem", pybind11.get_include(), "-fvisibility=hidden"]
    return extension.load(extension.build(FOLDER / "tensors.cpp", language="c++", more=more))


@pytest.fixture(scope="module")
def lengths():
    nanobind = pytest.importorskip("nanobind")
    folder = Path(nanobind.__path__[0])
    more = [f"-isystem{folder / 'include'}", f"-isystem{folder / 'ext/robin_map/include'}"]
    more += ["-fvisibility=hidden", "-fno-strict-aliasing", str(folder / "src/nb_combined.cpp")]
    # nanobind's own source is not clean with -Wpedantic.
    built = extension.build(FOLDER / "lengths.cpp", "c++", ["-std=c++17"], more)
    return extension.load(built)


class TestC:
    def test_total_of_any_column(self, columns):
        assert columns.total(np.arange(10)) == 45
        assert columns.total(ad.array(np.arange(10))[3:]) == 42
        assert columns.total(np.arange(0)) == 0

    def test_total_leaves_nulls_out(self, columns):
        masked = np.ma.masked_array(np.arange(10), np.arange(10) % 2 == 0)
        assert columns.total(masked) == 1 + 3 + 5 + 7 + 9
        assert columns.total(ad.array(masked)[3:]) == 3 + 5 + 7 + 9

    def test_total_on_another_device(self, columns, software):
        assert columns.total(software.array([1, 2, 3])) == 6

    def test_total_of_another_type(self, columns):
        with pytest.raises(TypeError, match="expected a column of int64"):
            columns.total(np.arange(3.0))

    def test_squares(self, columns):
        found = columns.squares(5)
        assert isinstance(found, ad.Array)
        assert found.schema.name == "square"
        assert found.to_pylist() == [0, 1, 4, 9, 16]
        assert columns.squares(0).to_pylist() == []
        with pytest.raises(ValueError, match="expected 0 to"):
            columns.squares(-1)


@pytest.mark.slow
class TestCython:
    def test_rows_of_any_stream(self, batches):
        assert batches.rows(np.arange(7)) == 7
        assert batches.rows(ad.array_stream([np.arange(3), np.arange(4)])) == 7
        assert batches.rows(ad.record_batch({"x": np.arange(5)})) == 5

    def test_error_of_the_stream(self, batches):
        def broken():
            yield np.arange(3)
            raise ValueError("no more")

        with pytest.raises(OSError, match="no more"):
            batches.rows(broken())

    def test_error_of_the_export(self, batches):
        with pytest.raises(TypeError, match="object is no stream"):
            batches.rows(object())


@pytest.mark.slow
class TestPybind11:
    def test_dot_of_any_tensors(self, tensors):
        x = np.arange(4.0)
        assert tensors.dot(x, ad.tensor(x)) == 14
        assert tensors.dot(x[::-1], np.ones(8)[::2]) == 6

    def test_dot_of_another_type(self, tensors):
        with pytest.raises(TypeError, match="float64"):
            tensors.dot(np.arange(3), np.arange(3))
        with pytest.raises(ValueError, match="lengths differ"):
            tensors.dot(np.ones(3), np.ones(4))

    def test_dot_refuses_nulls(self, tensors):
        masked = np.ma.masked_array(np.arange(3.0), [True, False, False])
        with pytest.raises(ad.ExchangeError) as caught:
            tensors.dot(masked, masked)
        assert caught.value.reason == "nulls"

    def test_ramp_of_a_class(self, tensors):
        found = tensors.ramp(3, np.ndarray)
        assert type(found) is np.ndarray
        assert found.tolist() == [0.0, 1.0, 2.0]
        assert isinstance(tensors.ramp(3, ad.Tensor), ad.Tensor)
        with pytest.raises(TypeError, match="Fraction"):
            from fractions import Fraction

            tensors.ramp(3, Fraction)


@pytest.mark.slow
class TestNanobind:
    def test_length_of_any_array(self, lengths):
        assert lengths.length(np.arange(7)) == lengths.length(ad.array(np.arange(9))[2:]) == 7
        with pytest.raises(TypeError, match="object"):
            lengths.length(object())
