"""Dictionaries, lists, tuples and strings, made and dropped so many times; one line that depends on them."""
import hashlib
import sys

digest = hashlib.sha256()
kept = {}
for r in range(int(sys.argv[1])):
    for i in range(20000):
        kept[(i * 7919 + r) % 50000] = [str(i), i * 2, (i, r), {"r": r}]
    if r % 3 == 0:
        for key in sorted(kept)[r % 7 :: 7]:
            del kept[key]
    digest.update(repr(sorted(kept.items())[r % 100 :: 97]).encode())
print(digest.hexdigest(), len(kept))
