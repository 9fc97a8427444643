# Rank 0 fills its memory and asks again and again whether rank 1 has made a file, which does so some seconds
# after it has filled its own.
import os, sys, time

rank, flag, seconds, mib = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), 60
memory = bytearray(mib << 20)
for i in range(0, len(memory), 4096):
    memory[i] = 1
if rank == 0:
    while not os.path.exists(flag):
        time.sleep(0.05)
else:
    time.sleep(seconds)
    open(flag, "w").close()
print(rank, "done", sum(memory[::4096]))
