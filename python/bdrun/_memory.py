"""How much memory there is, and how much processes take."""

import os


def parse_bytes(value, what="memory"):
    """Bytes, of a number or text as `400M`: K, M, G, T are powers of 1024. `what` it is, for messages."""
    if isinstance(value, str):
        text = value.strip().upper().removesuffix("IB").removesuffix("B")
        power = "KMGT".find(text[-1:]) + 1 if text else 0
        try:
            value = float(text[:-1] if power else text) * 1024**power
        except ValueError:
            raise ValueError(f"{what} {value!r} is no number of bytes; as 800M or 2G") from None
    if not 0 < value < 1 << 62:
        raise ValueError(f"{what} of {value} bytes")
    return int(value)


def available_memory():
    """Bytes: this one's part of the budget of bdrun's job if it is a rank, else 80 % of what is available, in cgroups also."""
    budget, ranks = (os.environ.get(name, "") for name in ("BDRUN_BUDGET_BYTES", "BDRUN_SIZE"))
    if budget.isdigit():
        return int(budget) // max(int(ranks) if ranks.isdigit() else 1, 1)
    with open("/proc/meminfo", encoding="ascii") as file:
        found = dict(line.split(":") for line in file)
    available = int(found["MemAvailable"].split()[0]) << 10
    for root, group, limit, taken, inactive in _groups():
        while True:
            folder = root + group.rstrip("/")
            try:
                most, now = _number(f"{folder}/{limit}"), _number(f"{folder}/{taken}")
                with open(f"{folder}/memory.stat", encoding="ascii") as file:
                    now -= next(int(line.split()[1]) for line in file if line.startswith(inactive + " "))
                available = min(available, max(most - now, 0))
            except (OSError, ValueError, StopIteration):
                pass  # none is set here
            if group in ("", "/"):
                break
            group = group.rsplit("/", 1)[0]
    return int(available * 0.8) + private(os.getpid())


def _groups():
    """Where limits of this process's cgroups are: where these are, which, and names of files, by version."""
    try:
        with open("/proc/self/cgroup", encoding="ascii") as file:
            lines = [line.strip().split(":", 2) for line in file]
    except OSError:
        return
    for _, controllers, group in lines:
        if not controllers:
            yield "/sys/fs/cgroup", group, "memory.max", "memory.current", "inactive_file"
        elif "memory" in controllers.split(","):
            yield "/sys/fs/cgroup/memory", group, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"


def _number(path):
    with open(path, encoding="ascii") as file:
        return int(file.read())


def private(pid):
    """Bytes of a process that are no file's."""
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
        return sum(int(line.split()[1]) << 10 for line in file if line.startswith("RssAnon"))


def proportional(pid):
    """Bytes of a process that are no file's, those shared with others in part; without memory that is shared on purpose.

    Pages of files (modules) are divided among all programs that map them: if another one ended, this would seem to grow.
    """
    found = {}
    try:
        file = open(f"/proc/{pid}/smaps_rollup", encoding="ascii", errors="replace")
    except OSError:  # kernels before 4.14
        return private(pid)
    with file:
        for line in file:
            name, _, value = line.partition(":")
            if name.startswith("Pss"):
                found[name] = int(value.split()[0]) << 10
    if "Pss_Anon" in found:
        return found["Pss_Anon"]
    return found["Pss"] - found.get("Pss_Shmem", 0)  # kernels before 5.4


def is_memory(folder):
    """Whether files in a folder lie in memory."""
    device = os.stat(folder).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                fields = line.split()
                if fields[2] == number:
                    return fields[fields.index("-") + 1] in ("tmpfs", "ramfs")
    except (OSError, ValueError, IndexError):
        pass
    return False
