"""What a pyinfra user has in deploy.py; the step is passed with --data."""

import json
import os
from pathlib import Path

from pyinfra import host
from pyinfra.facts.files import FindFiles
from pyinfra.operations import files, server

job = json.loads(Path(os.environ["BENCH_JOB"]).read_text())
step = host.data.step

if step.startswith("push"):
    target = f"{job['host_folder']}/code/"
    files.rsync(src=f"{job['source']}/", dest=target, flags=["-a", "--delete"])
elif step.startswith("collect"):
    for path in host.get_fact(FindFiles, path=job["checkpoints"]):
        files.get(src=path, dest=f"{job['collected']}/{Path(path).name}", create_local_dir=True)
else:
    server.shell(commands=[job[step]])
