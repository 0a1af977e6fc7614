"""What a pyinfra user has in deploy.py; the step comes as --data."""

import json
import os
from pathlib import Path

from pyinfra import host
from pyinfra.facts.files import FindFiles
from pyinfra.operations import files, server

words = json.loads(Path(os.environ["BENCH_WORDS"]).read_text())
step = host.data.step

if step.startswith("push"):
    target = f"{words['there']}/code/"
    files.rsync(src=f"{words['source']}/", dest=target, flags=["-a", "--delete"])
elif step.startswith("collect"):
    for path in host.get_fact(FindFiles, path=words["checkpoints"]):
        files.get(src=path, dest=f"{words['home']}/{Path(path).name}", create_local_dir=True)
else:
    server.shell(commands=[words[step]])
