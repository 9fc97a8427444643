"""A task of HyperQueue is one bdrun job of many parts, within the processors of the task:

    python hq.py

Server and worker run in this process; with a server that is there already, `Client(SERVER_DIRECTORY)` instead of the cluster. A task that
fails may be submitted again: it goes on where it stopped.
"""
import os
import sys
import tempfile

from hyperqueue import Job, LocalCluster
from hyperqueue.cluster import WorkerConfig
from hyperqueue.job import ResourceRequest

CORES = 2

os.makedirs("sorted", exist_ok=True)
job = Job()
job.program(
    ["bdrun", "--memory", "200M", "--processors", str(CORES), "--resume", "sorted.journal", "--output", "quiet",
     "--glob", "parts/*.txt", "--output-files", "sorted/{/}", "--", os.environ.get("TOOL", "sort"), "{}"],
    cwd=os.getcwd(), stdout="task.out", stderr="task.err", resources=ResourceRequest(cpus=CORES))
with tempfile.TemporaryDirectory() as server, LocalCluster(server, WorkerConfig(cores=CORES)) as cluster:
    client = cluster.client()
    fine = client.wait_for_jobs([client.submit(job)], raise_on_error=False)
sys.exit(0 if fine and os.system("sort -m sorted/*.txt > total.txt") == 0 else 1)
