"""`bdrun.array` beside NumPy: files, memory, errors; `python.rs` runs each function whose name is given."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np

import bdrun.array as ba


def files():
    rng = np.random.default_rng(1)
    one, other = rng.random((700, 500)), rng.integers(-9, 9, (500, 300))
    with tempfile.TemporaryDirectory() as folder:
        np.save(f"{folder}/one.npy", one)
        np.save(f"{folder}/other.npy", other)
        a, b = ba.from_npy(f"{folder}/one.npy", block=100_000), ba.from_npy(f"{folder}/other.npy", block=50_000)
        assert len(a.chunks[0]) > 1 and a.dtype == "f8" and b.shape == (500, 300)
        done = ba.Statistics()
        (a @ b - a.mean(axis=0)[:300]).to_npy(f"{folder}/c.npy", memory="200M", scratch=folder, resume=True, statistics=done)
        np.testing.assert_allclose(np.load(f"{folder}/c.npy"), one @ other - one.mean(axis=0)[:300])
        assert done["tasks"] > 20 and done["most"] > 0, done
        assert sorted(os.listdir(folder)) == ["c.npy", "one.npy", "other.npy"]
        a.T.to_raw(f"{folder}/raw")
        np.testing.assert_array_equal(np.fromfile(f"{folder}/raw").reshape(500, 700), one.T)
        np.testing.assert_array_equal(ba.from_raw(f"{folder}/raw", (2, 700), "f8", offset=8 * 700).compute(), one.T[1:3])
        for path in ("nowhere.npy", "c.h5"):
            try:
                (ba.from_hdf5(f"{folder}/{path}", "x") if "h5" in path else ba.from_npy(f"{folder}/{path}"))
            except OSError as error:
                assert path in str(error), error
            else:
                raise AssertionError(path)
        for how in (None, "gzip", "gzip:9", "zstd"):
            a.T.to_zarr(f"{folder}/t.zarr/{how}", chunks=(30, 70), compression=how, memory="200M", resume=True)
            back = ba.from_zarr(f"{folder}/t.zarr/{how}", block=100_000)
            np.testing.assert_array_equal(back.compute(), one.T)
            assert back.chunks[0][0] % 30 == 0 and back.chunks[1][0] % 70 == 0, back.chunks
        # Where the program is makes no difference; 0 is the whole axis.
        before = os.getcwd()
        os.chdir(folder)
        a.T.to_zarr("new.zarr/c", chunks=(0, np.int64(100)))
        back = ba.from_zarr("new.zarr/c")
        os.chdir(before)
        np.testing.assert_array_equal(back.compute(), one.T)
        with open(f"{folder}/new.zarr/c/zarr.json") as file:
            assert json.load(file)["chunk_grid"]["configuration"]["chunk_shape"] == [500, 100]
        # What is replaced is not read as if it were the same, nor as never written.
        (back + 1).to_zarr(f"{folder}/new.zarr/c")
        try:
            back.compute()
        except OSError as error:
            assert "replaced or removed" in str(error), error
        else:
            raise AssertionError("it was read")
        with open(f"{folder}/t.zarr/zstd/zarr.json") as file:
            assert json.load(file)["chunk_grid"]["configuration"]["chunk_shape"] == [30, 70]
        for wrong, kind, said in [
            (lambda: a.to_zarr(folder), OSError, "no array of Zarr"),
            (lambda: a.to_zarr(f"{folder}/u.zarr", compression="lzma"), ValueError, "lzma"),
            (lambda: a.to_zarr(f"{folder}/u.zarr", compression=5), ValueError, "compression 5"),
            (lambda: a.to_zarr(f"{folder}/t.zarr/None/inside"), OSError, "is an array, in which"),
            (lambda: a.to_zarr(f"{folder}/u.zarr", chunks=np.int64(3)), ValueError, "chunks along 1 axes"),
            (lambda: a.to_zarr(f"{folder}/u.zarr", chunks=(3,), compression="zstd"), ValueError, "chunks along 1 axes"),
            (lambda: ba.from_zarr(f"{folder}/u.zarr"), OSError, "No such file"),
        ]:
            try:
                wrong()
            except kind as error:
                assert said in str(error), error
            else:
                raise AssertionError(said)
        try:
            import h5py
        except ImportError:
            return
        with h5py.File(f"{folder}/a.h5", "w") as file:
            file.create_dataset("A", data=one, chunks=(64, 100))
        a = ba.from_hdf5(f"{folder}/a.h5", "A")
        np.testing.assert_array_equal(a[::-1, 3].compute(), one[::-1, 3])
        a.T.to_hdf5(f"{folder}/t.h5", "T", chunks=(50, 70))
        with h5py.File(f"{folder}/t.h5") as file:
            assert file["T"].chunks == (50, 70)
            np.testing.assert_array_equal(file["T"][...], one.T)


def memory():
    """Results are NumPy's own arrays, whose memory is given back with them; what has no room is said before."""
    ones = ba.ones((3000, 1000)).rechunk(500)

    def resident():
        """As budgets are counted: what is no file's."""
        from bdrun._memory import private

        return private(os.getpid())

    kept = ones.compute()
    assert kept.flags.writeable and kept.sum() == 3_000_000
    before = resident()
    for _ in range(20):
        view = (ones + 1).compute()[10:20]
        assert view.sum() == 20_000
    del view
    assert resident() - before < 60 << 20, (resident() - before) >> 20
    assert np.asarray(ones[:2, :2]).tolist() == [[1, 1], [1, 1]] and float(ones.sum()) == 3e6
    first, second = ba.compute(ones.sum(axis=1), ones[0])
    assert first.shape == (3000,) and second.shape == (1000,)
    for little, said in (("1M", "1 MiB"), (resident() + (40 << 20), "results in memory 23 MiB")):
        try:
            (ones @ ones.T @ ones if little == "1M" else ones.rechunk(0).T.rechunk(0)).compute(memory=little)
        except MemoryError as error:
            assert said in str(error) and "budget" in str(error), error
        else:
            raise AssertionError(f"{little} is enough")


def errors():
    a = ba.asarray(np.arange(6))
    line = sys._getframe().f_lineno + 2
    try:
        (a ** -1).compute()
    except ValueError as error:
        assert f"arrays.py:{line}" in str(error), error
    else:
        raise AssertionError("integers have no negative powers")
    for name, wrong, kind in [
        ("fft", lambda: np.fft.fft(a), NotImplementedError),
        ("add.reduce", lambda: np.add.reduce(a), NotImplementedError),
        ("sum", lambda: np.sum(a, initial=3), NotImplementedError),
        ("sort", lambda: np.sort(a), NotImplementedError),
        ("truth", lambda: a[a > 3], NotImplementedError),
        ("float16", lambda: a.astype("float16"), TypeError),
        ("int8", lambda: ba.asarray(np.zeros(3, "int8")), TypeError),
        ("-1", lambda: ba.zeros((-1, 3)), ValueError),
        ("int32", lambda: a.astype("int32") + (1 << 40), OverflowError),
        ("out", lambda: np.add(a, 1, out=np.zeros(6)), NotImplementedError),
    ]:
        try:
            wrong()
        except kind as error:
            assert name in str(error) or name in ("truth", "-1"), (name, error)
        else:
            raise AssertionError(name)


def differences():
    """Where what looks right would be wrong."""
    import copy
    import pickle

    a = ba.asarray(np.arange(1000))
    one, other = copy.copy(a), copy.deepcopy({"x": a})["x"]
    del a
    kept = [ba.zeros(1000) for _ in range(20)]
    assert int(one.sum()) == int(other.sum()) == 499500 and len(kept) == 20
    try:
        pickle.dumps(one)
    except TypeError as error:
        assert "another process" in str(error)
    else:
        raise AssertionError("a pointer was pickled")
    big = np.array([1.0, 2.0], ">f8")
    assert ba.asarray(big).compute().tolist() == [1, 2] and (ba.ones(2) + big).compute().tolist() == [2, 3]
    x = np.arange(12.0).reshape(4, 3)
    b = ba.asarray(x)
    assert np.isclose(float(b.var(ddof=1.0)), x.var(ddof=1)) and np.isclose(float(b.std(ddof=np.int64(2))), x.std(ddof=2))
    assert np.round(ba.asarray(np.arange(3))).dtype == np.arange(3).dtype
    assert np.linalg.svd(b, full_matrices=False)[0].shape == (4, 3)
    with tempfile.NamedTemporaryFile() as file:
        x.astype(">f8").tofile(file.name)
        for wrong, kind in [
            (lambda: b.astype(">f8"), TypeError),
            (lambda: ba.from_raw(file.name, (4, 3), ">f8"), TypeError),
            (lambda: b.var(ddof=-1), NotImplementedError),
            (lambda: b.var(ddof=0.5), NotImplementedError),
            (lambda: np.linalg.svd(b), NotImplementedError),
            (lambda: b.sum(axis=1.5), TypeError),
            (lambda: ba.zeros((2.7, 3)), TypeError),
            (lambda: b[1.5:2], TypeError),
            (lambda: ba.full(3, 1 << 40, "int32"), OverflowError),
            (lambda: b + np.ma.masked_array(x, x > 3), NotImplementedError),
        ]:
            try:
                wrong()
            except kind:
                continue
            raise AssertionError(kind)


def edges():
    """What is too large, too many, or none: as NumPy has it."""
    values = np.arange(10.0)
    x, numbers = ba.asarray(values), ba.asarray(np.arange(-3, 7))
    whole = np.arange(-3, 7)
    huge = 1 << 70
    for ours, theirs in [
        (x[:: 1 << 32][:: 1 << 32], values[:: 1 << 32][:: 1 << 32]),
        (x[-huge:huge:3], values[-huge:huge:3]),
        (x[:: huge], values[:1]),
        (x.reshape(2, 5)[:: huge], values.reshape(2, 5)[:1]),
        (x * 10**20, values * 10**20),
        (numbers < huge, whole < huge),
        (numbers == huge, whole == huge),
        (numbers > -huge, whole > -huge),
        (np.expand_dims(x, (0, -1)), np.expand_dims(values, (0, -1))),
        (np.concatenate([x[:4].reshape(2, 2), numbers], axis=None), np.concatenate([values[:4].reshape(2, 2), whole], axis=None)),
        (np.sign(ba.asarray(np.array([-0.0, 0.0, -2.0]))), np.sign(np.array([-0.0, 0.0, -2.0]))),
        (np.linalg.svd(x.reshape(5, 2), full_matrices=False).S, np.linalg.svd(values.reshape(5, 2), full_matrices=False).S),
    ]:
        got = ours.compute()
        assert got.shape == theirs.shape and got.dtype == theirs.dtype, (got, theirs)
        np.testing.assert_allclose(got, theirs)
        if got.dtype.kind == "f":
            np.testing.assert_array_equal(np.signbit(got), np.signbit(theirs))
    nothing = ba.asarray(np.array([np.nan, 1.0]))
    for act, kind in [
        (lambda: numbers * huge, OverflowError),
        (lambda: x[huge], IndexError),
        (lambda: np.moveaxis(x, [0], [0]), NotImplementedError),
        (lambda: x[:4].reshape(4, 2**62 + 1), ValueError),
        (lambda: x[:0].reshape(2**32, 2**32, 0), ValueError),
        (lambda: np.histogram(nothing)[0].compute(), ValueError),
        (lambda: np.linalg.svd(nothing.reshape(2, 1), full_matrices=False)[1].compute(), np.linalg.LinAlgError),
        (lambda: np.histogram(x, bins=10**15)[1].compute(), MemoryError),
        (lambda: np.histogram(x, bins=1 << 60), ValueError),
        (lambda: ba.zeros((0, 2**50)).sum(axis=0).compute(), MemoryError),
        (lambda: (ba.asarray(np.arange(3)) ** ba.asarray(np.array([1, -1, 2]))).compute(), ValueError),
    ]:
        try:
            act()
        except kind:
            continue
        raise AssertionError(kind)
    with tempfile.TemporaryDirectory() as folder:
        for shape in ((2**61 + 1,), (2**40, 2**40), (0, 2**60), (2**40, 2**40, 0)):
            try:
                ba.zeros(shape)
                raise AssertionError(shape)
            except MemoryError:
                pass
        # Of nothing there is one block, however long other axes are; in a file too.
        np.save(f"{folder}/nothing.npy", np.zeros((0, 2**50)))
        for nothing in ba.zeros((0, 2**50)), ba.from_npy(f"{folder}/nothing.npy"), ba.asarray(np.zeros((0, 2**50))):
            assert nothing.rechunk((1, 1)).compute().shape == (0, 2**50) and nothing.T.chunks == ((2**50,), (0,))
        try:
            x.rechunk(1)[:: -1].reshape(1, 10).astype("f4") + ba.zeros((2**40, 10)).rechunk((1, 10))
            raise AssertionError("so many blocks")
        except MemoryError:
            pass
        with open(f"{folder}/long", "wb") as file:
            os.truncate(file.fileno(), 1 << 36)
        for many, said in [
            (lambda: ba.zeros((2**30, 1)) + ba.zeros((1, 2**30)), "2^48"),
            (lambda: (ba.zeros((2**24, 1)) + ba.zeros((1, 2**24))).sum().compute(), "2^24 tasks"),
            (lambda: ba.from_raw(f"{folder}/long", (1 << 36,), "bool", block=1000), "block=1000"),
        ]:
            try:
                many()
                raise AssertionError(said)
            except MemoryError as error:
                assert said in str(error), error
        assert ba.from_raw(f"{folder}/long", (1 << 36,), "bool", block=1 << 35).chunks == ((1 << 35, 1 << 35),)
        os.mkdir(f"{folder}/taken")
        try:
            x.to_npy(f"{folder}/taken")
            raise AssertionError("it is a directory")
        except OSError as error:
            assert "taken" in str(error), error
        # One expression is another one if its source is read from elsewhere, or in another shape.
        np.arange(200.0).tofile(f"{folder}/raw")
        of = [ba.from_raw(f"{folder}/raw", *how)[:5, :5] for how in [((10, 10), "f8"), ((5, 20), "f8"), ((10, 10), "f8", 800)]]
        for number, one in enumerate(of):
            np.testing.assert_array_equal(one.compute(), [np.arange(100.0).reshape(10, 10)[:5, :5], np.arange(100.0).reshape(5, 20)[:5, :5], np.arange(100.0, 200.0).reshape(10, 10)[:5, :5]][number])


AT_EXIT = """
import atexit
kept = []
atexit.register(lambda: print(kept[0].sum(), kept[1].sum().compute()))
import numpy as np, bdrun.array as ba
kept += [ba.ones((1000, 1000)).compute(), ba.ones(10)]
"""


def at_exit():
    """Results are there as long as they are used, at the end of the program too."""
    ran = subprocess.run([sys.executable, "-c", AT_EXIT], capture_output=True, text=True)
    assert ran.returncode == 0 and ran.stdout.startswith("1000000.0"), (ran.returncode, ran.stdout, ran.stderr)


def arguments():
    """Numbers of NumPy's are numbers; what is refused is said, and not done as if it were written."""
    five = ba.ones(5)
    with tempfile.TemporaryDirectory() as folder:
        five.to_npy(f"{folder}/five.npy", threads=np.int64(1), resume=np.True_)
        assert np.load(f"{folder}/five.npy").tolist() == [1] * 5
        for wrong in [
            lambda: five.to_hdf5(f"{folder}/five.h5", b"C"),
            lambda: five.to_hdf5(f"{folder}/five.h5", dataset=b"C"),
            lambda: five.to_zarr(f"{folder}/five.zarr", compression=b"zstd"),
            lambda: five.compute(scratch=5),
            lambda: five.compute(threads=1.5),
        ]:
            try:
                wrong()
            except TypeError:
                continue
            raise AssertionError("it was taken")
        assert os.listdir(folder) == ["five.npy"]

    def fail():
        raise ZeroDivisionError("on the thread that computes")

    ba._raised = fail
    try:
        five.compute(memory="1M")
    except ZeroDivisionError:
        pass
    else:
        raise AssertionError("it was lost")


OLD = """
import numpy as np
np.AxisError, others = np.exceptions.AxisError, np.__getattr__
def old(name):
    if name == "exceptions":
        raise AttributeError(name)
    return others(name)
np.__getattr__ = old
np.__dict__.pop("exceptions")
import bdrun.array as ba
for wrong in lambda: ba.ones(3).sum(axis=5), lambda: np.expand_dims(ba.ones(3), (7,)):
    try:
        wrong()
        raise SystemExit("there is no such axis")
    except np.AxisError:
        pass
try:
    ba.ones(3).compute(memory="1M")
    raise SystemExit("one MiB is enough")
except MemoryError:
    print("right")
"""


def old_numpy():
    """Before 1.25 errors were elsewhere."""
    ran = subprocess.run([sys.executable, "-c", OLD], capture_output=True, text=True)
    assert ran.returncode == 0 and ran.stdout == "right\n", (ran.returncode, ran.stdout, ran.stderr)


LONG = """
import bdrun.array as ba, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # which is ignored by what a shell has put into the background
a = ba.ones((18000, 18000)).rechunk(600)  # few blocks, of which each product takes long
print("on", flush=True)
(a.T @ a).sum().compute()
"""


def interrupted():
    """Ctrl-C ends a computation."""
    started = subprocess.Popen([sys.executable, "-c", LONG], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert started.stdout.readline() == "on\n", started.stderr.read()
        time.sleep(1)
        os.kill(started.pid, signal.SIGINT)
        assert started.wait(600) in (1, -2), started.returncode
        assert "KeyboardInterrupt" in started.stderr.read()
    finally:
        started.kill()


def interrupted_at_once():
    """Ctrl-C before the thread has begun: it does nothing when it begins, and what it would have used is not used."""
    import threading

    late, start = [], threading.Thread.start

    def interrupt(thread):
        late.append(thread)
        raise KeyboardInterrupt

    def begun(thread):
        start(thread)
        raise KeyboardInterrupt

    for how in interrupt, begun:
        threading.Thread.start = how
        try:
            (ba.ones((3000, 3000)).rechunk(300) + 1).sum().compute()
        except KeyboardInterrupt:
            pass
        else:
            raise AssertionError("it was interrupted")
        threading.Thread.start = start
    start(late[0])
    late[0].join()
    assert (ba.ones((100, 100)).rechunk(30) + 1).sum().compute() == 20_000


def masks():
    """What is not there is said so, whatever it is given."""
    for name in "sum", "mean", "std":
        try:
            getattr(np, name)(ba.ones(3), where=np.array([True, False, True]))
        except NotImplementedError:
            pass
        else:
            raise AssertionError(name)


def modules():
    """The package has its modules without a word of import for each."""
    import subprocess

    code = "import bdrun; bdrun.graph.Statistics(); bdrun.array.ones(3)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


def complex_numbers():
    """Functions of complex numbers are NumPy's part by part, also on either side of cuts and where a part is no number."""
    rng = np.random.default_rng(3)
    ends = [0.0, 5e-324, 1e-300, 1e-10, 0.5, 1.0, 1 + 1e-10, 1.5, np.pi / 2, 2.0, 20.5, 710.0, 1e154, 1e300, np.inf, np.nan]
    ends = np.array([sign * end for end in ends for sign in (1, -1)])
    parts = np.exp(rng.uniform(-20, 7, (2, 2000))) * rng.choice([-1, 1], (2, 2000))
    circle = np.exp(1j * rng.uniform(-4, 4, 1000)) * (1 + 10.0 ** rng.uniform(-16, -1, 1000))
    z = np.concatenate([(ends[:, None] + np.zeros_like(ends)).ravel() + 0j, parts[0] + 0j, circle, circle - 1, 1j * circle])
    z.imag[: len(ends) ** 2], z.imag[len(ends) ** 2 :][:2000] = np.tile(ends, len(ends)), parts[1]
    x = ba.asarray(z)

    def same(one, other):
        if one.dtype.kind == "c":
            return same(one.real, other.real) & same(one.imag, other.imag)
        near = abs(one - other) <= 1e-13 * abs(other)
        return (one == other) & (np.signbit(one) == np.signbit(other)) | np.isnan(one) & np.isnan(other) | near & (one != 0)

    names = "negative absolute sign sqrt exp expm1 log log10 log1p sin cos tan sinh cosh tanh arctan rint conjugate"
    with np.errstate(all="ignore"):
        for name in names.split():
            function = getattr(np, name)
            got, want = function(x).compute(), function(z)
            wrong = ~same(got, want)
            assert got.dtype == want.dtype and not wrong.any(), (name, wrong.sum(), z[wrong][0], got[wrong][0], want[wrong][0])
        # Whole powers too, but where products of numbers that are not finite are made on the way.
        base, other = z[np.isfinite(z)], rng.permutation(z[np.isfinite(z)])
        for exponent in (other, np.full_like(other, -1), np.full_like(other, 0.5)):
            got, want = (ba.asarray(base) ** ba.asarray(exponent)).compute(), base**exponent
            wrong = ~same(got, want)
            assert not wrong.any(), (wrong.sum(), base[wrong][0], exponent[wrong][0], got[wrong][0], want[wrong][0])


def histograms():
    """Counts and bounds are NumPy's to the last bit, whatever the type of elements."""
    rng = np.random.default_rng(5)
    failed = 0
    for case in range(300):
        values = rng.normal(size=rng.integers(0, 1500)) * 10.0 ** rng.integers(-3, 4) + rng.choice([0, 0, 1, 1e4])
        if case % 3 == 0:
            values = np.round(values, 1)  # often on a bound
        if case % 20 == 1:
            values = 1 + rng.random(500) * 1e-6  # next to each other as float32
        if case % 20 == 2:
            values[:] = 3.25
        values = values.astype(["f4", "f4", "f8", "i4", "i8"][case % 5])
        ends = rng.choice([rng.normal() * 10, 0.1, 0.3, -1.7, 100.0, 1 / 3], 2)
        between = None if case % 2 else tuple(sorted(float(end) for end in ends))
        if between and case % 7 == 0:
            between = tuple(map(np.float64, between))  # which is of a type, as Python's numbers are not
        bins = int(rng.integers(1, 200))
        x = ba.asarray(values)
        counts, bounds = np.histogram(x.rechunk(300) if len(values) else x, bins, between)
        try:
            want = np.histogram(values, bins, between)
        except ValueError:
            # Too many bins for numbers so near: whichever of the two is asked for.
            failed += 1
            for one in (counts, bounds):
                try:
                    one.compute()
                    raise AssertionError((case, bins))
                except ValueError:
                    pass
            continue
        assert bounds.dtype == want[1].dtype, (case, bounds.dtype)
        np.testing.assert_array_equal(bounds.compute(), want[1], str(case))
        np.testing.assert_array_equal(counts.compute(), want[0], str(case))
    assert failed > 0


def no_threads():
    """Where the system has no thread left it is computed on the one that asks."""
    import threading

    def refuse(thread):
        raise RuntimeError("can't start new thread")  # as Python says it

    threading.Thread.start = refuse
    assert (ba.ones((100, 100)).rechunk(30) + 1).sum().compute() == 20_000
    try:
        (ba.asarray(np.arange(3)) ** -1).compute()
    except ValueError:
        pass
    else:
        raise AssertionError("integers to negative powers")


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    print("right")
