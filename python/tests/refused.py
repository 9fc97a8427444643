"""What `bdrun.array` refuses, and as what: NumPy's errors; `python.rs` runs each function whose name is given."""

import errno
import os
import shutil
import sys
import tempfile

import numpy as np

import bdrun.array as ba


def expect(kind, said, act):
    try:
        act()
    except kind as error:
        assert said in str(error) and "defect" not in str(error), error
        return error
    raise AssertionError(f"no {kind.__name__}: {said}")


def arguments():
    """Each is a mistake of who calls, and none of bdrun's."""
    x = ba.asarray(np.arange(4.0))
    with tempfile.TemporaryDirectory() as folder:
        np.save(f"{folder}/x.npy", np.arange(1000.0))
        assert len(ba.from_npy(f"{folder}/x.npy", block="4K").chunks[0]) == 2
        huge = 1 << 70
        for kind, said, act in [
            (ValueError, "block", lambda: ba.from_npy(f"{folder}/x.npy", block="8X")),
            (ValueError, "block", lambda: ba.from_npy(f"{folder}/x.npy", block=0)),
            (ValueError, "block", lambda: ba.from_npy(f"{folder}/x.npy", block=-1)),
            (TypeError, "", lambda: ba.from_npy(f"{folder}/x.npy", block=[1])),
            (ValueError, "offset=-1", lambda: ba.from_raw(f"{folder}/x.npy", (4,), "f8", offset=-1)),
            (OverflowError, "too large", lambda: ba.from_raw(f"{folder}/x.npy", (4,), "f8", offset=huge)),
            (TypeError, "dataset", lambda: x.to_hdf5(f"{folder}/x.h5", 5)),
            (TypeError, "dataset", lambda: ba.from_hdf5(f"{folder}/x.h5", 5)),
            (ValueError, "threads=-3", lambda: x.compute(threads=-3)),
            (OverflowError, "too large", lambda: x.sum(axis=huge)),
            (OverflowError, "too large", lambda: x.sum(axis=(huge,))),
            (OverflowError, "too large", lambda: np.cumsum(x, axis=huge)),
            (OverflowError, "too large", lambda: np.swapaxes(x, huge, 0)),
            (OverflowError, "too large", lambda: np.expand_dims(x, huge)),
            (ValueError, "too large", lambda: np.transpose(x, (huge,))),
            (ValueError, "too large", lambda: x.reshape(huge)),
            (ValueError, "too large", lambda: ba.zeros(huge)),
            (ValueError, "too large", lambda: np.histogram(x, huge)),
            (NotImplementedError, "ddof", lambda: x.var(ddof=huge)),
            (TypeError, "", lambda: x.rechunk(2.7)),
            (TypeError, "", lambda: x.rechunk(((2.0, 2.0),))),
            (ValueError, "too large", lambda: x.rechunk(huge)),
            (ValueError, "along 2 axes, of an array of 1", lambda: x.rechunk(((2, 2), (9, 9)))),
            (ValueError, "", lambda: x.rechunk((2, 9))),
            (NotImplementedError, "many matrices", lambda: np.linalg.svd(ba.ones((3, 4, 4)), full_matrices=False)),
            (np.linalg.LinAlgError, "at least two-dimensional", lambda: np.linalg.svd(x, full_matrices=False)),
        ]:
            expect(kind, said, act)
        assert os.listdir(folder) == ["x.npy"]
    # What is written so is right.
    assert np.reshape(x, None).shape == (4,) and x.rechunk([np.int64(3)]).chunks == ((3, 1),)
    assert x.rechunk((np.int64(0),)).chunks == ((4,),) and x.rechunk(((np.int64(1), 3),)).chunks == ((1, 3),)
    assert x.reshape(2, 2).rechunk(((1, 1), 0)).chunks == ((1, 1), (2,))
    for made in ba.zeros(3, None), ba.ones(3, dtype=None), ba.zeros(3), ba.ones((), None):
        assert made.dtype == "f8", made
    assert ba.full(3, 1).dtype == np.full(3, 1).dtype and ba.zeros(3, "i4").dtype == "i4"


def numbers_of_errors():
    """Errors of files are of the classes that Python has for them."""
    x = ba.ones(4)
    with tempfile.TemporaryDirectory() as folder:
        for act in [
            lambda: ba.from_npy(f"{folder}/none.npy"),
            lambda: ba.from_zarr(f"{folder}/none.zarr"),
            lambda: x.to_npy(f"{folder}/none/x.npy"),
        ]:
            error = expect(FileNotFoundError, "none", act)
            assert error.errno == errno.ENOENT and "os error" not in str(error), error
        os.mkdir(f"{folder}/taken")
        assert expect(IsADirectoryError, "taken", lambda: x.to_npy(f"{folder}/taken")).errno == errno.EISDIR
        assert expect(NotADirectoryError, "x.npy", lambda: (x.to_npy(f"{folder}/x.npy"), x.to_npy(f"{folder}/x.npy/y"))).errno == errno.ENOTDIR
        # Found while it is computed.
        x.to_zarr(f"{folder}/x.zarr", chunks=2)
        opened = ba.from_zarr(f"{folder}/x.zarr")
        os.remove(f"{folder}/x.zarr/c/1")
        os.mkdir(f"{folder}/x.zarr/c/1")
        expect(OSError, "x.zarr", lambda: opened.compute())


class Other:
    """A function of somebody else's, as `numba.vectorize` makes them, by a name that NumPy has as well."""

    def __init__(self, name):
        self.__name__ = name


def functions():
    """NumPy's functions are those, and not all that have their names."""
    x = ba.asarray(np.arange(4.0))
    for name in "square", "add", "positive", "matmul", "conj", "mine":
        act = lambda: x.__array_ufunc__(Other(name), "__call__", *[x] * (1 + (name in ("add", "matmul"))))  # noqa: B023, E731
        expect(NotImplementedError, f"a function {name} that is not NumPy's", act)
    real = np.frompyfunc(lambda value: value + 1, 1, 1)
    expect(NotImplementedError, "not NumPy's", lambda: real(x))
    # By whatever name NumPy has them.
    for one in np.abs, np.absolute, np.conj, np.conjugate, np.true_divide, np.divide, np.mod, np.remainder, np.bitwise_not, np.invert:
        of = [np.arange(1, 5)] * one.nin
        assert one(*map(ba.asarray, of)).compute().tolist() == one(*of).tolist(), one
    assert np.matmul(x, x).compute() == 14
    expect(NotImplementedError, "numpy.arcsin", lambda: np.arcsin(x))


def quantiles():
    """Of NumPy's types, with infinities among the elements."""
    for dtype in "f4", "f8", "i4", "i8", "?":
        values = np.arange(5).astype(dtype)
        x = ba.asarray(values)
        for q in 0.5, 1, True, 0, [0.5], [0, 1], np.float64(0.5), np.float32(0.5), np.array([0.5, 1], "f4"), np.float16(0.5), np.int64(1), [[0.5, 0.25]], []:
            try:
                want = np.quantile(values, q)
            except TypeError:
                expect(TypeError, "bool", lambda: np.quantile(x, q))  # noqa: B023
                continue
            got = np.quantile(x, q).compute()
            assert got.dtype == want.dtype and np.shape(got) == want.shape, (dtype, q, got, want)
            np.testing.assert_allclose(got.astype("f8"), want.astype("f8"), rtol=0.0051)
    x = ba.asarray(np.array([1, 2, np.inf, -np.inf, 5])).rechunk(2)
    got = np.quantile(x, [0, 0.25, 0.5, 0.75, 1.0]).compute()
    np.testing.assert_allclose(got, [-np.inf, 1, 2, 5, np.inf], rtol=0.0051)
    assert np.isnan(np.quantile(ba.asarray(np.array([1, np.nan, np.inf])), 0.0).compute())
    expect(ValueError, "[0, 1]", lambda: np.quantile(x, 1.5))
    expect(IndexError, "no elements", lambda: np.quantile(ba.zeros(0), 0.5))


def groups():
    """Of what fails before anything is computed nothing is left, and what is there stays."""
    large = ba.ones((3000, 3000)).rechunk(0)
    with tempfile.TemporaryDirectory() as folder:
        for resume in False, True:
            # Enough to begin, and too little for a block.
            with open("/proc/self/status") as file:
                little = next(int(line.split()[1]) for line in file if line.startswith("VmRSS")) * 1024 + (60 << 20)
            expect(MemoryError, "budget", lambda: (large + 1).to_zarr(f"{folder}/new.zarr/a/b", memory=little, resume=resume))  # noqa: B023
            assert os.listdir(folder) == []


def replaced():
    """A file of HDF5 in which there is more stays, whoever has it open."""
    import h5py

    x = ba.ones(5)
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/x.h5"
        with h5py.File(path, "a") as file:
            file["a"], file["b"] = np.arange(3), np.arange(4)
            expect(OSError, "somebody writes to it", lambda: x.to_hdf5(path, "C"))
            file["c"] = np.arange(5)
        with h5py.File(path) as file:
            assert set(file) == {"a", "b", "c"}
        expect(OSError, "more in it than C", lambda: x.to_hdf5(path, "C"))
        os.remove(path)
        # One that is made just now has nothing in it yet.
        with h5py.File(path, "w") as file:
            expect(OSError, "somebody writes to it", lambda: x.to_hdf5(path, "C"))
            file["D"] = np.arange(3)
        with h5py.File(path) as file:
            assert set(file) == {"D"}
        os.remove(path)
        for _ in range(2):
            x.to_hdf5(path, "C")
        with h5py.File(path, "a") as file:
            file["C"].attrs["units"], file.attrs["run"] = "K", 1
        expect(OSError, "attributes of its own", lambda: x.to_hdf5(path, "C"))
        with h5py.File(path, "a") as file:
            del file.attrs["run"]
        # Who reads it reads what it was.
        with h5py.File(path) as file:
            (x + 1).to_hdf5(path, "C")
            assert file["C"][...].tolist() == [1] * 5
        with h5py.File(path) as file:
            assert file["C"][...].tolist() == [2] * 5
        assert os.listdir(folder) == ["x.h5"]


def replaced_apart():
    """The same where h5py and `bdrun.array` have a library of HDF5 each, which know nothing of one another."""
    with tempfile.TemporaryDirectory() as folder:
        if "BDRUN_HDF5" in os.environ:
            os.environ["BDRUN_HDF5"] = shutil.copy(os.environ["BDRUN_HDF5"], folder)
        replaced()
        with open("/proc/self/maps") as file:
            libraries = {line.split()[-1] for line in file if "libhdf5" in line and "_hl" not in line}
        assert len(libraries) == 2 or "BDRUN_HDF5" not in os.environ, libraries


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    print("right")
