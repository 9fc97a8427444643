# Two ranks write and await files by turns; both hold memory that they touch each time.
import os, sys, time

rank, folder, rounds, mib = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), 60
memory = bytearray(mib << 20)

def touch():
    for i in range(0, len(memory), 4096):
        memory[i] = (memory[i] + 1) % 251

touch()
for i in range(rounds):
    if rank == 1:
        while not os.path.exists(f"{folder}/0-{i}"):
            time.sleep(0.05)
    touch()
    open(f"{folder}/{rank}-{i}", "w").close()
    if rank == 0:
        while not os.path.exists(f"{folder}/1-{i}"):
            time.sleep(0.05)
print(rank, "done")
