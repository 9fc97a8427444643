"""What `bdrun.get` computes of Dask's graphs, and how values, names and files come to workers and back."""

import errno
import os
import pickle
import subprocess
import sys
import tempfile

import dask
import dask.array as da
import dask.bag as db
import numpy as np

import bdrun
from common import SCRATCH, fixed, get, main


def arrays():
    random = np.random.default_rng(1).random
    one, other = da.from_array(random((1500, 1500)), chunks=250), da.from_array(random((1500, 1500)), chunks=300)
    spilled = 0
    for name, value in [
        ("mean", one.mean(axis=0)),
        ("product", one.T.dot(one) - one.mean(axis=0)),
        ("chunks", other.rechunk((1500, 100)).map_blocks(lambda block: np.sort(block, axis=0)).rechunk(250).sum(axis=1)),
        ("overlap", da.overlap.overlap(one, 2, "periodic").map_blocks(np.cumsum, axis=1, dtype="f8").sum()),
        ("departure", (one - one.mean()).std() + other.T[:200, :50]),
        ("strings", da.from_array(np.array(["ab", "c", "def"] * 100)).reshape((30, 10))),
    ]:
        want = value.compute(scheduler="synchronous")
        base = fixed()
        for room in (12 << 20, 64 << 20):
            got, statistics = get(value, base + room)
            if value.dtype.kind == "f":
                np.testing.assert_allclose(got, want, rtol=1e-10, err_msg=name)
            else:
                np.testing.assert_array_equal(got, want, err_msg=name)
            assert got.dtype == want.dtype and (got.ndim == 0 or got.flags.writeable), name
            spilled += statistics["written"]
            assert statistics["too_large"] or statistics["most"] <= room * 1.25, (name, room, statistics)
    assert spilled > 10 << 20, spilled


def collections():
    bag = db.from_sequence(range(1000), npartitions=7)
    words = bag.map(lambda number: f"word{number % 13}")
    result, _ = get(words.frequencies(), "2G")
    assert dict(result) == {f"word{at}": len(range(at, 1000, 13)) for at in range(13)}
    grouped, _ = get(bag.groupby(lambda number: number % 3), "2G")
    assert {key: sum(items) for key, items in grouped} == {at: sum(range(at, 1000, 3)) for at in range(3)}

    @dask.delayed
    def add(*numbers):
        return sum(numbers)

    # Lists, the same key several times, nested computing, a value that is nothing.
    assert get([add(1, 2), add(1, 2), [add(3)], None], "2G")[0] == [3, 3, [3], None]
    assert get(dask.delayed(lambda: da.ones(10, chunks=5).sum().compute())(), "2G")[0] == 10


def graphs():
    big = np.arange(1 << 20)
    dsk = {
        "a": 1,
        "b": "a",  # another name
        "c": (sum, ["a", "b", 3]),
        ("x", 0): (np.add, "big", "c"),
        "big": big,
        "d": (lambda array, number: (array.sum(), number), ("x", 0), "b"),
    }
    found = bdrun.get(dsk, ["c", ["b", ("x", 0)], "d", "c"], memory="2G")
    assert found[0] == found[3] == 5 and found[1][0] == 1
    np.testing.assert_array_equal(found[1][1], big + 5)
    assert found[2] == (big.sum() + 5 * len(big), 1)
    assert bdrun.get(dsk, "a", memory="2G") == 1
    for wrong, error in [({"a": (sum, "b"), "b": (sum, "a")}, "circle"), ({"a": 1}, "'z'")]:
        try:
            bdrun.get(wrong, "z" if "z" in error else "a", memory="2G")
        except (KeyError, ValueError) as failed:
            assert error in str(failed), failed
        else:
            raise AssertionError(error)


def names():
    """Chains are fused whatever keys they have, and none is taken for another."""

    def first(number):
        return number

    def second(number):
        return number * 1000 + 1

    chains = []
    for number in range(200):
        one = number
        for at in range(5):
            name = f"a_rather_long_name_of_a_function_{at}"
            one = dask.delayed(second if at else first)(one, dask_key_name=f"{name}-{number:032x}")
        chains.append(one)
    want = list(dask.compute(*chains, scheduler="synchronous"))
    assert get(chains, "2G")[0] == want
    for dsk, keys in [
        ({"load": (abs, -5), "x": (second, "load"), "load-x": (abs, -100)}, ["x", "load-x"]),
        ({1: (abs, -5), 2: (second, 1), (3, 4): (second, 2), 5: (second, (3, 4))}, [5, 2]),
        ({"a": np.arange(40000), "b": (np.sum, "a"), "c": (second, "b")}, ["c"]),
    ]:
        assert tuple(bdrun.get(dsk, keys, memory="2G")) == tuple(dask.get(dsk, keys)), dsk
    try:
        from dask._task_spec import Task, TaskRef

        bdrun.get({"a": Task("a", abs, TaskRef("b"))}, "a", memory="2G")
        raise AssertionError("there is no b")
    except KeyError as error:
        assert "'b'" in str(error) and "'a'" in str(error), error
    from dask import _task_spec

    if hasattr(_task_spec, "List"):
        # What is made by hand may have no name of its own.
        listed = _task_spec.List(TaskRef("a"), 2)
        assert listed.key is None
        made = {"a": Task("a", abs, -1), "b": listed, "c": Task("c", sum, TaskRef("b")), "d": Task("d", second, TaskRef("c"))}
        assert bdrun.get(made, ["d", "c"], memory="2G") == (3001, 3)


def mapped():
    """Files that are mapped are not read into this process."""
    path = os.path.join(SCRATCH, f"bdrun-mapped-{os.getpid()}")
    whole = np.arange(5_000_000.0)
    try:
        np.concatenate([[7.0], whole]).tofile(path)
        array = np.memmap(path, "f8", "r", 8, whole.shape)
        for one in (array, array[1000:4_000_001], array[4000:].reshape(-1, 4)[5:], array[::3]):
            value = da.from_array(one, chunks=500_000).sum()
            assert get(value, "2G")[0] == np.asarray(one).sum(), one.shape
        from bdrun import _values

        assert len(_values.dumps(array)) < 2000 and len(_values.dumps(array[5:])) < 2000
        # As `os.replace` leaves it: the map is of what has no name any more.
        (whole + 1).tofile(f"{path}-new")
        os.replace(f"{path}-new", path)
        for one in (array, array[5:]):
            for value in (da.from_array(one, chunks=500_000).sum(), dask.delayed(np.sum)(one)):
                assert get(value, "2G")[0] == np.asarray(one).sum(), "of another file"
        now = np.memmap(path, "f8", "r", 0, whole.shape)
        assert get((da.from_array(now, chunks=500_000) - da.from_array(array, chunks=500_000)).sum(), "2G")[0] == whole.size
    finally:
        os.unlink(path)
    assert get(dask.delayed(np.sum)(now), "2G")[0] == np.asarray(now).sum()


def replaced():
    """A file that is replaced while its contents are needed is not taken for what was mapped."""
    path = os.path.join(SCRATCH, f"bdrun-replaced-{os.getpid()}")
    try:
        np.zeros(1 << 16).tofile(path)
        array = np.memmap(path, "f8", "r")

        def replace(one):
            np.ones(1 << 16).tofile(f"{path}-new")
            os.replace(f"{path}-new", path)
            return one

        # Its path is sent before it is another's.
        from bdrun import _values

        sent = _values.dumps(array)
        replace(0)
        for what in (lambda: pickle.loads(sent), lambda: get(dask.delayed(lambda data: pickle.loads(data).sum())(sent), "2G")):
            try:
                what()
                raise AssertionError("of another file")
            except OSError as error:
                assert error.errno == errno.ESTALE and error.filename == path, error
    finally:
        os.unlink(path)


def caches():
    """A worker that remembers what it was given: that does not change, although it was released long ago."""

    def remember(block):
        import builtins

        seen = builtins.__dict__.setdefault("_seen", [])
        for array, total in seen:
            assert array.sum() == total, "what was remembered has changed"
        seen.append((block, block.sum()))
        block[0, 0] = -1e9  # nobody else sees this
        seen[-1] = (block, block.sum())
        return np.array([[len(seen)]])

    one = da.from_array(np.random.default_rng(2).random((1200, 1200)), chunks=300)
    base = fixed()
    total = (one + 1).map_blocks(remember, dtype="i8", chunks=(1, 1)).sum() + (one + 1).sum().astype("i8") * 0
    got, _ = get(total, base + (24 << 20))
    assert got >= 16, got
    np.testing.assert_array_equal(get((one + 1).sum(axis=0), base + (24 << 20))[0], (one + 1).sum(axis=0).compute())


class Colour(__import__("enum").Enum):
    """A key of a class of the program itself."""

    RED = 1


class Two(Exception):
    def __init__(self, one, two):
        super().__init__(one)
        self.two = two


SHADOWED = """
import sys; sys.path[0:0] = [{here!r}]
import bdrun
def said(x):
    print("from a task")
    return x
print(bdrun.get({{"a": (said, 7)}}, "a", memory="2G"))
"""


def surroundings():
    """Keys of the program's own classes, errors that cannot be made of their arguments, files that are named as Python's."""
    found = bdrun.get({(Colour.RED, 0): (abs, -1), "b": (abs, (Colour.RED, 0))}, ["b", (Colour.RED, 0)], memory="2G")
    assert tuple(found) == (1, 1), found

    def fail(_):
        raise Two(1, "two")

    try:
        bdrun.get({"a": (fail, 1)}, "a", memory="2G")
    except Two as error:
        assert error.args == (1,) and error.two == "two"
    else:
        raise AssertionError("it did not fail")
    here = bdrun.__path__[0].rpartition("/")[0]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    with tempfile.TemporaryDirectory() as folder:
        for name in ("struct", "array", "socket"):
            with open(f"{folder}/{name}.py", "w") as file:
                file.write("raise SystemExit('this is not Python\'s')")
        script = os.path.join(tempfile.mkdtemp(), "script.py")
        with open(script, "w") as file:
            file.write(SHADOWED.format(here=here))
        ran = subprocess.run([sys.executable, script], cwd=folder, env=environment, capture_output=True, text=True)
        os.remove(script)
        os.rmdir(os.path.dirname(script))
    assert sorted(ran.stdout.split("\n")) == ["", "7", "from a task"], (ran.stdout, ran.stderr)
    for wrong in ({"num_workers": 0}, {"memory": "inf"}, {"memory": 1e30}):
        try:
            bdrun.get({"a": (abs, -1)}, "a", **{"memory": "2G", **wrong})
        except ValueError as error:
            assert next(iter(wrong)) in str(error), error
        else:
            raise AssertionError(wrong)


def progress():
    from dask.callbacks import Callback

    seen = []
    with Callback(
        start=lambda dsk: seen.append("start"),
        pretask=lambda key, dsk, state: seen.append(("before", key)),
        posttask=lambda key, value, dsk, state, worker: seen.append(("after", key, len(state["finished"]))),
        finish=lambda dsk, state, failed: seen.append(("finish", failed)),
    ):
        get(da.arange(100, chunks=10).sum(), "2G")
    assert seen[0] == "start" and seen[-1] == ("finish", False)
    before = [item[1] for item in seen[1:-1] if item[0] == "before"]
    after = [item for item in seen[1:-1] if item[0] == "after"]
    assert len(before) == len(after) >= 10 and set(before) == {item[1] for item in after}
    assert [item[2] for item in after] == list(range(1, len(after) + 1))


def profiled():
    from dask.diagnostics import Profiler

    value = da.ones((100, 100), chunks=50).cumsum(axis=0).sum()
    with Profiler() as profile:
        assert get(value, "2G")[0] == 100 * 5050
    assert len(profile.results) > 3, profile.results
    try:
        from dask.cache import Cache

        cache = Cache(1e6)
    except ImportError:  # which needs cachey
        return
    try:
        with cache:
            get(value, "2G")
        raise AssertionError("it would remember that all results are None")
    except NotImplementedError as error:
        assert "dask.cache" in str(error), error


def drawn():
    """A page of a run: each task begins and ends, what is released was there."""
    import re
    import warnings

    one = da.from_array(np.random.default_rng(1).random((900, 900)), chunks=150)
    value = one.T.dot(one) - one.mean(axis=0)
    base = fixed()
    with tempfile.TemporaryDirectory() as folder:
        get(value, base + (8 << 20), draw=f"{folder}/run.html")
        page = open(f"{folder}/run.html").read()
        try:
            get(value, "2G", draw=f"{folder}/none/run.html")
        except OSError as error:
            assert "none/run.html" in str(error)
        else:
            raise AssertionError("there is no such folder")
        try:
            keys = [f"k{at}" for at in range(20_001)]
            bdrun.get(dict.fromkeys(keys, (abs, -1)) | {"all": (sum, keys)}, "all", memory="2G", draw=f"{folder}/run.html")
        except ValueError as error:
            assert "20001" in str(error) or "20002" in str(error), error
        else:
            raise AssertionError("more than can be drawn")

        def remove(number):
            os.unlink(f"{folder}/gone/run.html")
            os.rmdir(f"{folder}/gone")
            return number

        # Results are not lost with it.
        os.mkdir(f"{folder}/gone")
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            assert get(dask.delayed(remove)(7), "2G", draw=f"{folder}/gone/run.html")[0] == 7
        assert any("gone/run.html" in str(one.message) for one in said), said
    events = [tuple(map(int, event)) for event in re.findall(r"\[(\d+),(\d),(\d+),(\d+)\],", page)]
    tasks = page.count("<circle")
    begun = [task for _, kind, task, _ in events if kind == 0]
    assert sorted(begun) == list(range(tasks)) and tasks > 100, (len(begun), tasks)
    assert sorted(task for _, kind, task, _ in events if kind == 1) == sorted(begun)
    assert any(kind == 3 for _, kind, _, _ in events) and "array-" in page
    times = [time for time, *_ in events]
    assert times == sorted(times)


def inputs():
    """A task with more inputs than descriptors."""
    import resource

    def joined(blocks):
        return sum(block[0] for block in blocks)

    def blocks(count):
        return dask.delayed(joined)([dask.delayed(np.full)(4096, number) for number in range(count)])

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
    assert get(blocks(400), "4G")[0] == 400 * 399 // 2, "a soft limit is raised"
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
    if sys.version_info >= (3, 13):
        assert get(blocks(400), "4G")[0] == 400 * 399 // 2
        return
    try:
        get(blocks(400), "4G")
        raise AssertionError("there are 200 descriptors")
    except OSError as error:
        assert "ulimit -Hn" in str(error) and "200" in str(error), error
        notes = getattr(error, "__notes__", ["joined"])  # from Python 3.11 on
        assert any("joined" in note for note in notes), notes


def values():
    """Values as bytes and back."""
    from bdrun._values import Packed, unpack

    for value in [
        None,
        [1, "two"],
        np.arange(0),
        np.asfortranarray(np.arange(12).reshape(3, 4)),
        np.arange(24).reshape(2, 3, 4)[:, ::2],
        {"a": np.ones((100, 100)), "b": [np.zeros(5, "c16"), b"x" * 1000]},
        np.array([{"an": "object"}, None], dtype=object),
        np.rec.array([(1, 2.5)], dtype=[("x", "i4"), ("y", "f8")]),
    ]:
        packed = Packed(value)
        with tempfile.TemporaryFile() as file:
            packed.write(file.fileno(), 0)
            file.seek(0)
            # What ends with nothing is not filled up to where that begins.
            assert file.read().ljust(packed.size, b"\0") == bytes(packed.joined())
        back = unpack(memoryview(packed.joined()), packed.pieces)
        assert pickle.dumps(back) == pickle.dumps(pickle.loads(pickle.dumps(value)))


if __name__ == "__main__":
    main(globals())
