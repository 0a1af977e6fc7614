"""What a Fabric user writes: a group for commands, a thread pool with rsync for the tree."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fabric import ThreadingGroup

job, step = json.loads(Path(sys.argv[1]).read_text()), sys.argv[2]
group = ThreadingGroup(*job["hosts"], connect_kwargs={"key_filename": job["key"]})


def push(name):
    options = ["rsync", "-a", "--delete", "-e", job["ssh"]]
    target = f"{name}:{job['host_folder']}/code/"
    subprocess.run([*options, f"{job['source']}/", target], check=True)


def collect(chief):
    target = Path(job["collected"])
    target.mkdir(exist_ok=True)
    for name in chief.sftp().listdir(job["checkpoints"]):
        chief.get(f"{job['checkpoints']}/{name}", str(target / name))


if step.startswith("push"):
    group.run(f"mkdir -p {job['host_folder']}/code")
    with ThreadPoolExecutor(len(job["names"])) as pool:
        list(pool.map(push, job["names"]))
elif step.startswith("collect"):
    collect(group[0])
else:
    group.run(job[step])
group.close()
