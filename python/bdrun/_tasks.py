"""A graph of Dask by numbers."""


class Tasks:
    """A graph by numbers: what is needed by what, and of which kind it is."""

    def __init__(self, dsk, keys):
        from dask._task_spec import Alias, DataNode, convert_legacy_graph
        from dask.utils import ensure_dict

        if hasattr(dsk, "__dask_graph__"):
            dsk = dsk.__dask_graph__()
        dsk = convert_legacy_graph(ensure_dict(dsk))
        for key in keys:
            if key not in dsk:
                raise KeyError(f"{key!r} is no task of the graph")
        needed, stack = {}, list(keys)
        while stack:
            key = stack.pop()
            if key not in needed:
                needed[key] = dsk[key]
                for name in needed[key].dependencies:
                    if name not in dsk:
                        raise KeyError(f"{name!r}, which {key!r} needs, is no task of the graph")
                    stack.append(name)
        _no_circle(needed)
        dsk, kinds = _fused(needed, keys)
        # Other names are no tasks. (Until Dask 2025 their targets were references to keys.)
        self.alias = {key: getattr(node.target, "key", node.target) for key, node in dsk.items() if isinstance(node, Alias)}
        self.keys = [key for key in dsk if key not in self.alias]
        self.nodes = [dsk[key] for key in self.keys]
        self.data = [isinstance(node, DataNode) for node in self.nodes]
        self.number = {key: number for number, key in enumerate(self.keys)}
        # Of each task the names by which it knows what it needs.
        self.names = [list(node.dependencies) for node in self.nodes]
        self.inputs = [[self.find(name) for name in names] for names in self.names]
        numbers = {}
        self.groups = [numbers.setdefault(kinds[key], len(numbers)) for key in self.keys]

    def find(self, key):
        """The number of the task that a key names."""
        seen = set()
        while key in self.alias:
            if key in seen:
                raise ValueError(f"{key!r} is another name of itself")
            seen.add(key)
            key = self.alias[key]
        return self.number[key]


# Data of a graph up to so many bytes is part of the task that uses it.
SMALL = 16 << 10


def _fused(dsk, asked):
    """Chains of tasks as one task each, which has the key of its last one, and of which kinds they are.

    Not by `fuse_linear_task_spec`: it names chains by 115 characters and four of a hash, so that two chains may have one name and
    one of them is lost; and it has no names for those whose keys are no text.
    """
    from dask._task_spec import Alias, DataNode, Task
    from dask.sizeof import sizeof
    from dask.utils import key_split

    users = {}
    for node in dsk.values():
        for name in node.dependencies:
            users[name] = users.get(name, 0) + 1

    def is_apart(key):
        node = dsk[key]
        if isinstance(node, DataNode):
            return sizeof(node.value) > SMALL
        # Tasks are fused by the names that they have themselves: in graphs made by hand some have none.
        return isinstance(node, Alias) or getattr(node, "block_fusion", False) or node.key != key

    below = {}
    for key, node in dsk.items():
        if len(node.dependencies) == 1 and not is_apart(key):
            (name,) = node.dependencies
            if users[name] == 1 and name not in asked and not is_apart(name):
                below[key] = name
    inner = set(below.values())
    fused, kinds = {}, {}
    for key, node in dsk.items():
        if key in inner:
            continue
        chain = [key]
        while chain[-1] in below:
            chain.append(below[chain[-1]])
        chain.reverse()
        fused[key] = node if len(chain) == 1 else Task.fuse(*(dsk[one] for one in chain), key=key)
        kinds[key] = tuple(key_split(one) for one in chain)
    return fused, kinds


def _no_circle(dsk):
    missing = {key: len(node.dependencies) for key, node in dsk.items()}
    users = {}
    for key, node in dsk.items():
        for name in node.dependencies:
            users.setdefault(name, []).append(key)
    ready = [key for key, count in missing.items() if count == 0]
    while ready:
        key = ready.pop()
        del missing[key]
        for user in users.get(key, ()):
            missing[user] -= 1
            if missing[user] == 0:
                ready.append(user)
    if missing:
        # Each of these needs another of them: whoever follows them comes back to where they were.
        path, key = {}, next(iter(missing))
        while key not in path:
            path[key] = len(path)
            key = next(name for name in dsk[key].dependencies if name in missing)
        circle = list(path)[path[key] :] + [key]
        raise ValueError("these tasks need each other in a circle: " + " needs ".join(map(repr, circle)))
