#!/usr/bin/env python3
"""Task graphs of real Dask programs, as files that tests and benches of bdrun-graph read.

usage: export.py DIRECTORY [NAME...] [--scale S]

Each program is optimised by Dask as for `compute`, run once with small chunks by Dask's synchronous scheduler to
measure each result's bytes and seconds, and ordered by `dask.order.order`. A file is gzip of little-endian columns:

    magic b"bdg2", n u32, m u32    (b"bdg1": without kinds)
    bytes      n x u64    size of each result
    seconds    n x f32    measured
    output     n x u8     1: a result that was asked for
    inputs     n x u32    how many
    input      m x i32    task's number minus the input's number
    dask       n x u32    the task's place in Dask's order
    kind       n x u32    tasks whose keys begin alike

Tasks are numbered as in the graph's dictionary. Aliases are replaced by what they name.
"""
import gzip
import struct
import sys
import time

import dask
import dask.array as da
import numpy as np
from dask._task_spec import Alias, DataNode, DependenciesMapping
from dask.callbacks import Callback
from dask.order import order
from dask.sizeof import sizeof
from dask.utils import key_split


def rechunk(s):
    x = da.random.random((32 * 8 * s, 32 * 8 * s), chunks=(32, 32 * 8 * s))
    y = x.rechunk((32 * 8 * s, 32))
    return [(y - y.mean(axis=0)).sum(axis=0)]


def rechunk_mean(s):
    x = da.random.random((24 * 12 * s, 24 * 12 * s), chunks=(24, 24 * 4))
    return [(x.rechunk((24 * 4, 24)).T + 1).rechunk((48, 48)).mean(axis=1)]


def overlap(s):
    x = da.random.random((32 * 12 * s, 32 * 12), chunks=32)
    return [x.map_overlap(lambda b: b * 2, depth=4, boundary="reflect").map_overlap(lambda b: b + 1, depth=2, boundary="none").sum(axis=0)]


def svd(s):
    x = da.random.random((64 * 40 * s, 24), chunks=(64, 24))
    u, t, v = da.linalg.svd(x)
    return [(u * t).std(axis=0), v]


def svd_compressed(s):
    x = da.random.random((48 * 8 * s, 48 * 8), chunks=(48, 48))
    u, t, v = da.linalg.svd_compressed(x, 8, n_power_iter=2, seed=1)
    return [u.sum(axis=0), t, v.sum(axis=1)]


def climatology(s):
    """Mean of each month over years, and what each day departs from it (xarray's groupby), in three dimensions."""
    import xarray as xr

    days = 365 * 4
    x = da.random.random((days, 16 * s, 16 * s), chunks=(30, 16, 16))
    times = np.datetime64("2001-01-01") + np.arange(days).astype("timedelta64[D]")
    array = xr.DataArray(x, dims=("time", "y", "x"), coords={"time": times})
    groups = array.groupby("time.month")
    return [(groups - groups.mean("time")).std("time").data]


def anomaly(s):
    """Departure from the mean over time, then the covariance of two fields."""
    u = da.random.random((24 * 20 * s, 24, 24 * 4), chunks=(24, 24, 24))
    v = da.random.random((24 * 20 * s, 24, 24 * 4), chunks=(24, 24, 24))
    return [((u - u.mean(axis=0)) * (v - v.mean(axis=0))).mean(axis=0), (u * v).mean(axis=0)]


def groupby(s):
    import dask.dataframe as dd
    import pandas as pd

    def part(i):
        r = np.random.default_rng(i)
        return pd.DataFrame({"key": r.integers(0, 500, 2000), "a": r.random(2000), "b": r.random(2000)})

    frame = dd.from_map(part, range(40 * s))
    return [frame.groupby("key").agg({"a": ["mean", "std"], "b": "max"}, split_out=4)]


def shuffle(s):
    import dask.dataframe as dd
    import pandas as pd

    def part(i):
        r = np.random.default_rng(i)
        return pd.DataFrame({"key": r.integers(0, 5000, 1000), "a": r.random(1000)})

    left, right = dd.from_map(part, range(24 * s)), dd.from_map(part, range(24 * s))
    with dask.config.set({"dataframe.shuffle.method": "tasks"}):
        return [left.merge(right.drop_duplicates("key"), on="key").a_x.sum()]


def product(s):
    """The seed's first expression."""
    a = da.random.random((32 * 4, 32 * 20 * s), chunks=32)
    b = da.random.random((32 * 4, 32 * 4), chunks=32)
    return [a.T.dot(b)]


def fail_case(s):
    """The seed's fail case."""
    a = da.random.random((32 * 4, 32 * 20 * s), chunks=32)
    b = da.random.random((32 * 4, 32 * 4), chunks=32)
    return [a.T.dot(b) - b.mean(axis=0)]


def reductions(s):
    """The seed's third expression."""
    b = da.random.random((32 * 8 * s, 32 * 8 * s), chunks=32)
    return [(b - b.mean(axis=0)) + (b.T / b.std())]


def gram(s):
    """A chain of products with a normalisation between."""
    x = da.random.random((32 * 16 * s, 32 * 6), chunks=32)
    z = (x - x.mean(axis=0)) / x.std(axis=0)
    return [z.T.dot(z) / x.shape[0], abs(z).max(axis=1)]


def cumulative(s):
    x = da.random.random((32 * 20 * s, 32 * 8), chunks=32)
    c = da.cumsum(x, axis=0)
    return [(c[32:] - c[:-32]).max(axis=0), da.diff(x, axis=1).sum(axis=0)]


def fft(s):
    """A transform along one axis after the other, and its power."""
    x = da.random.random((32 * 8 * s, 32 * 8 * s), chunks=(32 * 8 * s, 32))
    y = da.fft.fft(da.fft.fft(x, axis=0).rechunk((32, 32 * 8 * s)), axis=1)
    return [(abs(y) ** 2).sum(axis=1)]


def solve(s):
    n = 32 * 8 * s
    x = da.random.random((n, n), chunks=32) + n * da.eye(n, chunks=32)
    b = da.random.random((n, 4), chunks=(32, 4))
    return [da.linalg.solve(x, b)]


class Measure(Callback):
    def __init__(self):
        self.bytes, self.seconds, self.began = {}, {}, {}

    def _pretask(self, key, dsk, state):
        self.began[key] = time.perf_counter()

    def _posttask(self, key, value, dsk, state, worker):
        self.seconds[key] = time.perf_counter() - self.began[key]
        self.bytes[key] = size(value)


def size(value):
    if isinstance(value, np.ndarray):
        return max(8, value.nbytes)
    if isinstance(value, (list, tuple)):
        return 8 + sum(map(size, value))
    if isinstance(value, dict):
        return 8 + sum(map(size, value.values()))
    return max(8, min(sizeof(value), 64) if np.isscalar(value) or value is None else sizeof(value))


def export(path, name, scale):
    collections = globals()[name](scale)
    if any(isinstance(each, da.Array) for each in collections):
        collections = dask.optimize(*collections)
    else:
        collections = [each.optimize() for each in collections]
    dsk, outputs = {}, []
    for collection in collections:
        dsk.update(collection.__dask_graph__())
        outputs.extend(dask.core.flatten(collection.__dask_keys__()))
    dsk = dask._task_spec.convert_legacy_graph(dsk)
    dsk = dask._task_spec.cull(dsk, outputs)
    dsk = dict(dsk)
    began = time.perf_counter()
    ranks = order(dsk)
    ordered = time.perf_counter() - began
    measure = Measure()
    with measure:
        dask.get(dsk, outputs)
    needs = {key: set(inputs) for key, inputs in DependenciesMapping(dsk).items()}

    def named(key):
        while isinstance(dsk[key], Alias):
            (key,) = needs[key]
        return key

    outputs = {named(key) for key in outputs}
    keys = [key for key in dsk if named(key) == key]
    number = {key: index for index, key in enumerate(keys)}
    inputs = [sorted({number[named(other)] for other in needs[key]}) for key in keys]
    kinds = {}
    place = {key: index for index, key in enumerate(sorted(keys, key=ranks.__getitem__))}
    for key in keys:
        if isinstance(dsk[key], DataNode):
            measure.bytes[key] = size(dsk[key].value)
    columns = [
        np.array([measure.bytes[key] for key in keys], "<u8"),
        np.array([measure.seconds.get(key, 0) for key in keys], "<f4"),
        np.array([key in outputs for key in keys], "u1"),
        np.array([len(list_) for list_ in inputs], "<u4"),
        np.array([index - other for index, list_ in enumerate(inputs) for other in list_], "<i4"),
        np.array([place[key] for key in keys], "<u4"),
        np.array([kinds.setdefault(key_split(key), len(kinds)) for key in keys], "<u4"),
    ]
    # What a clock says is noise beyond two digits, and does not compress.
    columns[1] = np.array([float(f"{value:.1g}") for value in columns[1]], "<f4")
    edges = len(columns[4])
    with gzip.GzipFile(f"{path}/{name}-{scale}.bdg", "wb", 9, mtime=0) as file:
        # The first version had no kinds.
        file.write(b"bdg2" + struct.pack("<II", len(keys), edges))
        for column in columns:
            file.write(column.tobytes())
    print(f"{name} x {scale}: {len(keys)} tasks, {edges} edges, ordered by Dask in {ordered:.2f} s", flush=True)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    scale = 1
    if "--scale" in arguments:
        at = arguments.index("--scale")
        scale = int(arguments[at + 1])
        del arguments[at : at + 2]
    programs = arguments[1:] or ["rechunk", "rechunk_mean", "overlap", "svd", "svd_compressed", "climatology", "anomaly", "groupby", "shuffle",
                                 "product", "fail_case", "reductions", "gram", "cumulative", "fft", "solve"]
    for program in programs:
        export(arguments[0], program, scale)
