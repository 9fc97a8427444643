"""A graph of Dask by numbers."""


class Tasks:
    """A graph by numbers: what is needed by what, and of which kind it is."""

    def __init__(self, dsk, keys):
        from dask._task_spec import Alias, DataNode, convert_legacy_graph, fuse_linear_task_spec
        from dask.utils import ensure_dict, key_split

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
                stack.extend(needed[key].dependencies)
        _no_circle(needed)
        dsk = fuse_linear_task_spec(needed, keys)
        # Other names are no tasks. (Until Dask 2025 their targets were references to keys.)
        self.alias = {key: getattr(node.target, "key", node.target) for key, node in dsk.items() if isinstance(node, Alias)}
        self.keys = [key for key in dsk if key not in self.alias]
        self.nodes = [dsk[key] for key in self.keys]
        self.data = [isinstance(node, DataNode) for node in self.nodes]
        self.number = {key: number for number, key in enumerate(self.keys)}
        # Of each task the names by which it knows what it needs.
        self.names = [list(node.dependencies) for node in self.nodes]
        self.inputs = [[self.find(name) for name in names] for names in self.names]
        kinds = {}
        self.groups = [kinds.setdefault(key_split(key), len(kinds)) for key in self.keys]

    def find(self, key):
        """The number of the task that a key names."""
        seen = set()
        while key in self.alias:
            if key in seen:
                raise ValueError(f"{key!r} is another name of itself")
            seen.add(key)
            key = self.alias[key]
        return self.number[key]


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
        path, key = [], next(iter(missing))
        while key not in path:
            path.append(key)
            key = next(name for name in dsk[key].dependencies if name in missing)
        circle = path[path.index(key) :] + [key]
        raise ValueError("these tasks need each other in a circle: " + " needs ".join(map(repr, circle)))
