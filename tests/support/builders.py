"""Functions that build inventories, plans, launches and processes for tests."""

from __future__ import annotations

import codecs
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from tfdeploy.agent.supervision.heartbeat.server import HeartbeatServer, Observer
from tfdeploy.config import inventory as inventories
from tfdeploy.errors import InventoryError, PlanError
from tfdeploy.planning import placing
from tfdeploy.run import Run
from tfdeploy.shared.protocol.record import field_types, replace
from tfdeploy.shared.records import (
    Directory,
    Endpoint,
    Gpus,
    HeartbeatSettings,
    Launch,
    Limits,
    Policy,
    Process,
    QueuePlace,
)

FILE = Path("/home/ada/hosts.toml")
NOBODY_UID = 65534
EXAMPLE_HINT = "tfdeploy example shows every key"
RUN_HOSTS = """
[defaults]
python = "py"
env = {A = "1"}
[hosts.p]
ps = 1
[hosts.w]
gpus = [3, 1]
workers = "per-gpu"
address = "10.0.0.2"
[hosts.idle]
"""


def hosts_toml(hosts="[hosts.a]\nworkers = 1", *, training="", top=""):
    """Return the text of a hosts.toml with these tables, and these lines at the top and in
    [training]."""
    return f'project = "p"\n{top}\n[training]\ncommand = "python train.py"\n{training}\n{hosts}\n'


def make_inventory(hosts="[hosts.a]\nworkers = 1", *, training="", top=""):
    return inventories.parse(hosts_toml(hosts, training=training, top=top), FILE)


def refusal_of(content):
    """Return the messages that refuse the text of a hosts.toml, without the file name, and the
    hint."""
    with pytest.raises(InventoryError) as refused:
        inventories.parse(content, FILE)
    messages = refused.value.message.split("\n")
    assert all(message.startswith(f"{FILE}: ") for message in messages)
    return [message.removeprefix(f"{FILE}: ") for message in messages], refused.value.hint


def make_plan(hosts):
    """Return the plan of these hosts; a host without an address has its name as its address."""
    inventory = make_inventory(hosts)
    return placing.make_plan(
        inventory, {host.name: host.address or host.name for host in inventory.hosts}
    )


def plan_refusal(hosts, **addresses):
    """Return the message and the hint that refuse to place the tasks of these hosts."""
    inventory = make_inventory(hosts)
    named = {
        host.name: addresses.get(host.name, host.address or host.name) for host in inventory.hosts
    }
    with pytest.raises(PlanError) as refused:
        placing.make_plan(inventory, named)
    return refused.value.message, refused.value.hint


def make_run(folder, name="hosts.toml", run_id="20260101-000000-aaaa", hosts=RUN_HOSTS, **changes):
    """Return the run of a hosts.toml that it writes into `folder`; hosts have made-up addresses."""
    file = folder / name
    file.write_text(hosts_toml(hosts, **changes))
    loaded = inventories.load(file)
    addresses = {host.name: host.address or f"{host.name}.example" for host in loaded.hosts}
    hosts = (host.copy_with({"address": addresses[host.name]}) for host in loaded.hosts)
    resolved = loaded.copy_with({"hosts": tuple(hosts)})
    return Run(run_id, "f00d", "a9e", resolved, placing.make_plan(resolved, addresses))


def run_json(**values):
    """The content of a run.json, with these values."""
    texts = {"release": "f00d", "agent": "abc", "hosts_file": "hosts.toml", "folder": "/"}
    texts |= {"launched": "", "name": ""}
    lists = {"auto_ports": [], "words": [], "left_out": []}
    tables = {"data": {}, "environments": {}, "source": {}, "written": {}}
    return {**texts, **lists, **tables, "by_id_only": False, "starts": 1, **values}


def put(tree, path, content="x"):
    """Write a file below the folder `tree`; return its path."""
    file = tree / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file


@contextmanager
def as_unprivileged_user(folder):
    """Run the block as a user that permissions apply to: if the tests run as root, switch to
    another user, who gets `folder`."""
    if os.geteuid() != 0:
        yield
        return
    for path in (folder, *folder.rglob("*")):
        os.chown(path, NOBODY_UID, -1, follow_symlinks=False)
    codecs.lookup("idna")  # of connections: the user may be unable to read Python's modules
    os.seteuid(NOBODY_UID)
    try:
        yield
    finally:
        os.seteuid(0)


LAUNCH_PARTS = {
    "process": Process, "directory": Directory, "endpoint": Endpoint, "limits": Limits,
    "turn": QueuePlace,
}  # fmt: skip
GPU_FIELDS = {
    "gpus": "indexes", "gpu_choice": "choice", "gpus_shared": "shared",
    "exclude_sick": "exclude_sick",
}  # fmt: skip


def make_launch(**changes):
    """Return a launch; `changes` are fields of it, or of one of its parts by their own names. Those
    of its GPUs are called `gpus`, `gpu_choice`, `gpus_shared` and `exclude_sick`."""
    fields = {
        "project": "p", "run": "r", "job": "worker", "index": 0, "release": "f00d",
        "argv": ["python3", "train.py"], "env": {}, "port": None, "gpus": [],
        "checkpoint_dir": "checkpoints", "no_proxy": [], "ready_timeout_s": 20.0,
        "stop_grace_s": 1.0, "linger_s": 4.0, "max_duration_s": None,
        "policy": make_policy(), "heartbeat": make_heartbeat_settings(), **changes,
    }  # fmt: skip
    task = "{}:{}".format(fields.pop("job"), fields.pop("index"))
    gpus = Gpus(**{new: fields.pop(old) for old, new in GPU_FIELDS.items() if old in fields})
    parts = {
        part: kind(**{name: fields.pop(name) for name in field_types(kind) if name in fields})
        for part, kind in LAUNCH_PARTS.items()
    }
    launch = Launch(**{"task": task, "gpus": gpus, **parts, **fields})
    return replace(launch, heartbeat=launch.heartbeat.of(launch.task))


def change_launch(launch, **changes):
    """Return a launch with other values in some fields of its parts, which have the names that they
    have in make_launch."""
    for name, value in changes.items():
        if name in GPU_FIELDS:
            gpus = replace(launch.gpus.indexes, **{GPU_FIELDS[name]: value})
            launch = replace(launch, gpus=gpus)
            continue
        part = next(p for p, kind in LAUNCH_PARTS.items() if name in field_types(kind))
        launch = replace(launch, **{part: replace(getattr(launch, part), **{name: value})})
    return launch


def make_policy(**changes):
    fields = {
        "attempts": 10, "delay_s": 1.0, "exits": [1, "signals"], "frozen_timeout_s": 20.0,
        "stall_timeout_s": None,
    }  # fmt: skip
    return Policy(**{**fields, **changes})


def make_heartbeat_settings(**changes):
    fields = {
        "address": "127.0.0.1", "port": 0, "secret": "s3cret", "chief": "worker:0",
        "tasks": ["ps:0", "worker:0", "worker:1"], "needed": ["ps:0"], "replicas": [],
        "orphan_timeout_s": 1800.0, "task": "worker:0", "launch_name": "launch",
    }  # fmt: skip
    return HeartbeatSettings(**{**fields, **changes})


def no_files(file, offset):
    raise ValueError(f"{file} is not offered")


class Offering(Observer):
    """A chief's supervisor that offers files and a backup."""

    def __init__(self, read, backup):
        self.read, self.backup = read, backup


@contextmanager
def heartbeat_server(read=no_files, backup=lambda: None, **changes):
    """Start the chief's heartbeat server on a free port; yield it and the record with which the
    other tasks find it. Each has its own secret: clients of an earlier test may still send."""
    settings = make_heartbeat_settings(**{"secret": os.urandom(8).hex(), **changes})
    server = HeartbeatServer(settings, Offering(read, backup))
    try:
        yield server, replace(settings, port=server.port)
    finally:
        server.close()


def start_python(code, *words, **options):
    """Start a Python process and wait until it is ready: until `code` prints a line."""
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", code, *words], stdout=subprocess.PIPE, text=True, **options
    )
    process.first_line = process.stdout.readline().strip()
    return process


def end_processes(started):
    """Kill processes of `start_python`, and close their output."""
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def eventually(holds, within_s=60.0):
    """Return whether `holds()` becomes true in time."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if holds():
            return True
        time.sleep(0.01)
    return bool(holds())
