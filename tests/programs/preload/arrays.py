"""numpy arrays of so many MiB together, worked on so many times; one line that depends on every element."""
import hashlib
import sys

import numpy

mib, rounds = int(sys.argv[1]), int(sys.argv[2])
count = 8
size = mib * (1 << 17) // count
arrays = [numpy.arange(size, dtype=numpy.float64) * (i + 1) for i in range(count)]
digest = hashlib.sha256()
for r in range(rounds):
    i = r % count
    arrays[i] = numpy.sqrt(arrays[i] * arrays[(i + 3) % count] + r)
    arrays[(i + 1) % count][:: 7 + r] += 1.0
    digest.update(arrays[(i + 5) % count][r::1009].tobytes())
for array in arrays:
    digest.update(array.tobytes())
print(digest.hexdigest())
