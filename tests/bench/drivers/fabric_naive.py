"""What a Fabric user writes: a group for commands, a thread pool with rsync for the tree."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fabric import ThreadingGroup

words, step = json.loads(Path(sys.argv[1]).read_text()), sys.argv[2]
group = ThreadingGroup(*words["hosts"], connect_kwargs={"key_filename": words["key"]})


def push(name):
    options = ["rsync", "-a", "--delete", "-e", words["ssh"]]
    target = f"{name}:{words['there']}/code/"
    subprocess.run([*options, f"{words['source']}/", target], check=True)


def collect(chief):
    home = Path(words["home"])
    home.mkdir(exist_ok=True)
    for name in chief.sftp().listdir(words["checkpoints"]):
        chief.get(f"{words['checkpoints']}/{name}", str(home / name))


if step.startswith("push"):
    group.run(f"mkdir -p {words['there']}/code")
    with ThreadPoolExecutor(len(words["names"])) as pool:
        list(pool.map(push, words["names"]))
elif step.startswith("collect"):
    collect(group[0])
else:
    group.run(words[step])
group.close()
