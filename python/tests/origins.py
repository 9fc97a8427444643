"""`bdrun.array`: names that are no text, and which line an error names; `python.rs` runs each function whose name is given."""

import os
import shutil
import sys
import tempfile

import numpy as np

import bdrun.array as ba


def names():
    """Names of files are bytes: those of what is read, written, of scratch, and of the program itself."""
    exec(compile("import bdrun.array as ba\nassert ba.zeros(3).sum().compute() == 0", "caf\udce9.py", "exec"), {"__name__": "x"})
    try:
        exec(compile("import numpy as np, bdrun.array as ba\n(ba.asarray(np.arange(3)) ** -1).compute()", "caf\udce9.py", "exec"), {})
    except ValueError as error:
        assert "caf?.py:2" in str(error), error
    else:
        raise AssertionError("integers have no negative powers")
    values = np.arange(12.0).reshape(3, 4)
    x = ba.asarray(values)
    for name in b"caf\xe9", "caf\u00e9".encode(), b"\xff\xfe", "\u65e5\u672c".encode():
        with tempfile.TemporaryDirectory() as folder:
            inside = os.path.join(os.fsencode(folder), name)
            os.mkdir(inside)
            for path in inside + b"/" + name, os.fsdecode(inside + b"/" + name):
                for scratch in inside, os.fsdecode(inside):
                    x.to_npy(path, scratch=scratch)
                assert np.load(path).tolist() == values.tolist()
                (ba.from_npy(path) + 1).to_raw(path, resume=True)
                assert ba.from_raw(path, (3, 4), "f8").compute().tolist() == (values + 1).tolist()
                os.remove(path)
                x.to_zarr(path, memory="200M")
                assert ba.from_zarr(path).compute().tolist() == values.tolist()
                assert os.listdir(inside) == [name]
                shutil.rmtree(path)
            before, os.environ["TMPDIR"] = os.environ.get("TMPDIR"), os.fsdecode(inside)
            assert x.sum().compute() == 66
            os.environ.pop("TMPDIR") if before is None else os.environ.update(TMPDIR=before)
            try:
                ba.from_npy(inside + b"/nowhere")
            except OSError as error:
                assert "nowhere" in str(error), error
            else:
                raise AssertionError("nothing is there")
            try:
                import h5py
            except ImportError:
                continue
            x.to_hdf5(inside + b"/h5", "\u00e9")
            with h5py.File(inside + b"/h5") as file:
                assert list(file) == ["\u00e9"]
            assert ba.from_hdf5(inside + b"/h5", "\u00e9").compute().tolist() == values.tolist()
            # Of a dataset it is text.
            for wrong in lambda: x.to_hdf5(inside + b"/h5", "caf\udce9"), lambda: ba.from_hdf5(inside + b"/h5", "caf\udce9"):
                try:
                    wrong()
                except ValueError as error:
                    assert "defect" not in str(error), error
                else:
                    raise AssertionError("it is no text")
            try:
                x.to_npy(inside + b"/a\0b")
            except (OSError, ValueError) as error:
                assert "defect" not in str(error), error
            else:
                raise AssertionError("a zero ends a name")


def lines():
    """An error names the expression that failed, not one that became part of the same task."""
    line = sys._getframe().f_lineno + 2
    a, b = ba.asarray(np.arange(10)), ba.asarray(np.arange(10) - 5)
    p = a**b
    q = -p
    r = np.square(q)
    try:
        r.compute(threads=1)
    except ValueError as error:
        assert f"origins.py:{line})" in str(error) and f":{line + 2})" not in str(error).split("failed")[0], error
    else:
        raise AssertionError("integers have no negative powers")
    with tempfile.TemporaryDirectory() as folder:
        np.save(f"{folder}/x.npy", np.ones(1000))
        line = sys._getframe().f_lineno + 1
        x = ba.from_npy(f"{folder}/x.npy")
        y = -x
        z = y.sum()
        os.truncate(f"{folder}/x.npy", 1000)
        try:
            z.compute(threads=1)
        except OSError as error:
            assert f"origins.py:{line})" in str(error).split("failed")[0], error
        else:
            raise AssertionError("the file is too short")


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    print("right")
