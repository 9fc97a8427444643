"""What tests of `bdrun.get` share. `python.rs` gives a file and the name of one of its functions."""

import os
import sys
import tempfile

import dask

import bdrun
from bdrun.graph import Statistics

SCRATCH = tempfile.gettempdir() if len(sys.argv) < 3 else sys.argv[2]


def get(value, memory, **others):
    statistics = Statistics()
    (result,) = dask.compute(
        value, scheduler=bdrun.get, memory=memory, statistics=statistics, scratch=SCRATCH, num_workers=2, **others
    )
    return result, statistics


def fixed():
    """What Python and its modules take, without results."""
    return get(dask.delayed(0), "4G")[1]["fixed"] + (8 << 20)


def processes():
    """Those that run: number, its parent's, name."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as file:
                head, _, rest = file.read().rpartition(")")
        except OSError:
            continue
        state, parent = rest.split()[:2]
        if state not in "ZX":
            yield pid, parent, head.partition("(")[2]


def children(of=None):
    """Processes that this one, or another, has."""
    parent = str(of or os.getpid())
    return [pid for pid, above, _ in processes() if above == parent]


def main(functions):
    """The one that was asked for."""
    functions[sys.argv[1]]()
    print("right")
