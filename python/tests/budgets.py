"""`bdrun.array` within budgets: what counts, on how many threads; `python.rs` runs each function whose name is given."""

import os
import sys
import tempfile

import numpy as np

import bdrun.array as ba
from bdrun._memory import private

MIB = 1 << 20


def expect(kind, said, act):
    try:
        act()
    except kind as error:
        assert said in str(error), error
        return str(error)
    raise AssertionError(f"no {kind.__name__}: {said}")


def own():
    """What this process has."""
    return private(os.getpid())


def example():
    """That of README.md, on a machine of many processors."""
    import h5py

    ba.processors = lambda: 64
    rng = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as folder:
        # Sixteen times the budget in all that is made.
        with h5py.File(f"{folder}/ab.h5", "w") as file:
            for name in "AB":
                made = file.create_dataset(name, (8000, 2000), "f8", chunks=(500, 500))
                for at in range(0, 8000, 500):
                    made[at : at + 500] = rng.random((500, 2000))
        a, b = ba.from_hdf5(f"{folder}/ab.h5", "A"), ba.from_hdf5(f"{folder}/ab.h5", "B")
        c = a.T @ b - b.mean(axis=0)
        done = ba.Statistics()
        c.to_hdf5(f"{folder}/c.h5", "C", memory="100M", resume=True, statistics=done)
        assert 0 < done["most"] < 100 * MIB, done
        peak = np.sqrt(abs(c)).max().compute(memory="100M")
        c = ba.from_hdf5(f"{folder}/c.h5", "C")
        assert np.isclose(peak, np.sqrt(abs(c)).max().compute(memory="100M"))
        with h5py.File(f"{folder}/ab.h5") as file:
            want = file["A"][:, 7] @ file["B"][:, 9] - file["B"][:, 9].mean()
        assert np.isclose(c[7, 9].compute(), want)


def threads():
    """Fewer where there is no memory for so many; what is asked for is taken, and named where it does not fit."""
    x = ba.ones((2000, 2000)).rechunk(200)
    product = x @ x
    memory = own() + 100 * MIB
    said = expect(MemoryError, "threads", lambda: product.compute(memory=memory, threads=500))
    assert "500 threads" in said and "this process takes" in said and "fewer threads=" in said, said
    ba.processors = lambda: 500
    assert product.compute(memory=memory)[3, 5] == 2000
    assert product.sum().compute(memory=own() + 20 * MIB, threads=0) == 2000.0**3
    # What is too little for one is too little.
    said = expect(MemoryError, "1 threads", lambda: (x.rechunk(0) + 1).sum().compute(memory=own() + 20 * MIB))
    assert "results in memory 0 MiB" in said, said
    # For three tasks there are no 64.
    assert (ba.ones(10) + 1).compute(memory=own() + 20 * MIB, threads=64).tolist() == [2] * 10


def pages():
    """Pages of files are the kernel's to take back: they are no part of the budget."""
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/large", "wb") as file:
            os.truncate(file.fileno(), 400 * MIB)
        mapped = np.memmap(f"{folder}/large", mode="r")
        assert int(mapped[::4096].sum()) == 0
        with open("/proc/self/status") as file:
            resident = next(int(line.split()[1]) for line in file if line.startswith("VmRSS")) << 10
        assert resident > 400 * MIB, resident
        x = ba.ones((1000, 1000)).rechunk(100)
        assert (x + 1).sum().compute(memory=own() + 50 * MIB, threads=1) == 2e6


def quota():
    """Processors are as many as a quota has, or the machine."""
    import bdrun.graph
    from bdrun._library import processors

    assert bdrun.graph.processors is processors
    assert processors() == int(sys.argv[2]), processors()
    # By all that asks for them.
    asked = []
    ba.processors = lambda: asked.append(1) or processors()
    (ba.ones(10) + 1).compute()
    assert asked == [1]


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    print("right")
