# Makes and drops memory, first with descriptors to spare, then with none, then with some again.
import os, resource, time

def churn(seconds):
    end = time.time() + seconds
    while time.time() < end:
        parts = [bytes([i % 251]) * 200000 for i in range(50)]
        assert all(part[7] == i % 251 for i, part in enumerate(parts))
        time.sleep(0.01)

soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
churn(0.5)
resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
churn(2)
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
churn(0.5)
print("right")
