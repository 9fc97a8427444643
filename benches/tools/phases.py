"""phases.c through mpi4py and numpy: the same work, messages and checksum, as one would write it in Python.

usage: phases.py MIB_PER_RANK PHASES rw|ro|q MSG_KIB CHUNKS
"""
import sys
import time

import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD
rank, size = world.Get_rank(), world.Get_size()
mib, phases, mode, message_kib, chunks = (*map(int, sys.argv[1:3]), sys.argv[3], *map(int, sys.argv[4:6]))
words, per_message = mib * 1024 * 1024 // 8 // chunks, message_kib * 1024 // 8
u64 = np.uint64
np.seterr(over="ignore")  # numbers modulo 2^64


def say(text):
    if rank == 0:
        print(text, file=sys.stderr, flush=True)


begun = time.monotonic()
first = u64((rank + 1) * 0x9E3779B97F4A7C15 % 2**64)
arrays = []
for chunk in range(chunks):
    array = np.arange(chunk * words, (chunk + 1) * words, dtype=u64)
    array += first
    arrays.append(array)
sent, received = (np.empty(size * per_message, dtype=u64) for _ in range(2))
places = np.arange(per_message, dtype=u64)
# acc * P + r[0], then * P + r[1], and so on, all at once: r[i] is multiplied by P^(n - 1 - i).
powers = np.full(len(received) + 1, 1099511628211, dtype=u64)
powers[0] = 1
powers = np.multiply.accumulate(powers)
acc, total = u64(0), np.zeros(1, dtype=u64)
world.Barrier()
say(f"init {time.monotonic() - begun:.3f} s")

for phase in range(phases):
    began, k, s = time.monotonic(), u64(phase), u64(0)
    for array in arrays:
        changed = {"rw": words, "ro": 0, "q": words // 4}[mode]
        head, tail = array[:changed], array[changed:]
        head *= u64(6364136223846793005)
        head += k
        s += head.sum(dtype=u64)
        for at in range(0, len(tail), 1 << 20):
            s += (tail[at : at + (1 << 20)] ^ k).sum(dtype=u64)
    for other in range(size):
        sent[other * per_message : (other + 1) * per_message] = places + (s + u64(other * 31))
    world.Allreduce(np.array([s]), total)
    if per_message:
        world.Alltoall(sent, received)
    acc = acc * powers[-1] + (received * powers[-2::-1]).sum(dtype=u64) + total[0]
    say(f"phase {phase} {time.monotonic() - began:.3f} s")

check = np.zeros(1, dtype=u64)
world.Allreduce(np.array([acc]), check)
say(f"RESULT np={size} mib={mib} K={phases} mode={mode} msg={message_kib}K chunks={chunks} check={int(check[0]):016x}")
