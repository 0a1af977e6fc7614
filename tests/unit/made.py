"""Inventories, plans, launches and processes, made in the fewest words."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tfdeploy import inventory as inventories
from tfdeploy import plan as plans
from tfdeploy.agent.circle import Beacon
from tfdeploy.agent.records import Circle, Launch, Policy
from tfdeploy.errors import InventoryError, PlanError

FILE = Path("/home/ada/hosts.toml")
NOBODY = 65534
HINT = "hosts.example.toml shows every key"


def text(hosts="[hosts.a]\nworkers = 1", *, training="", top=""):
    return f'project = "p"\n{top}\n[training]\ncommand = "python train.py"\n{training}\n{hosts}\n'


def inventory(hosts="[hosts.a]\nworkers = 1", *, training="", top=""):
    return inventories.parse(text(hosts, training=training, top=top), FILE)


def refusal(content):
    """The sentences that refuse the text of a hosts.toml, without the file's name, and the hint."""
    with pytest.raises(InventoryError) as refused:
        inventories.parse(content, FILE)
    sentences = refused.value.message.split("\n")
    assert all(sentence.startswith(f"{FILE}: ") for sentence in sentences)
    return [sentence.removeprefix(f"{FILE}: ") for sentence in sentences], refused.value.hint


def plan(hosts):
    """The plan of some hosts; each has its name as its address where it says no other."""
    made = inventory(hosts)
    return plans.make(made, {host.name: host.address or host.name for host in made.hosts})


def no_plan(hosts, **addresses):
    """The message and the hint that refuse to place the tasks of some hosts."""
    made = inventory(hosts)
    named = {host.name: addresses.get(host.name, host.address or host.name) for host in made.hosts}
    with pytest.raises(PlanError) as refused:
        plans.make(made, named)
    return refused.value.message, refused.value.hint


@contextmanager
def as_nobody(folder):
    """Root may read and write everything, so where the tests run as root they lay it down for a
    moment; `folder` is given to whom they are then."""
    if os.geteuid() != 0:
        yield
        return
    for path in (folder, *folder.rglob("*")):
        os.chown(path, NOBODY, -1, follow_symlinks=False)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def launch(**changes):
    fields = {
        "project": "p", "run": "r", "job": "worker", "index": 0, "release": "f00d",
        "argv": ["python3", "train.py"], "env": {}, "port": None, "gpus": [],
        "checkpoint_dir": "checkpoints", "no_proxy": [], "ready_timeout_s": 20.0,
        "stop_grace_s": 1.0, "linger_s": 4.0, "max_duration_s": None, "log_limit_bytes": 1 << 20,
        "policy": policy(), "circle": circle(),
    }  # fmt: skip
    return Launch(**{**fields, **changes})


def policy(**changes):
    fields = {
        "attempts": 10, "window_s": 3600.0, "delay_s": 1.0, "max_delay_s": 60.0,
        "exits": [1, "signals"], "frozen_timeout_s": 20.0, "stall_timeout_s": None,
    }  # fmt: skip
    return Policy(**{**fields, **changes})


def circle(**changes):
    fields = {
        "address": "localhost", "port": 0, "secret": "s3cret", "chief": "worker:0",
        "tasks": ["ps:0", "worker:0", "worker:1"], "needed": ["ps:0"], "replicas": [],
        "orphan_timeout_s": 1800.0,
    }  # fmt: skip
    return Circle(**{**fields, **changes})


def no_files(file, offset):
    raise ValueError(f"{file} is not on offer")


@contextmanager
def answering(read=no_files, **changes):
    """The chief's side of a circle on a port of its own, and the circle as the others know it. A
    secret of its own, too: what another test has left may still ask."""
    known = circle(**{"secret": os.urandom(8).hex(), **changes})
    beacon = Beacon(known, read)
    try:
        yield beacon, replace(known, port=beacon._server.server_address[1])
    finally:
        beacon.close()


def python(code, *words, **options):
    """A Python process that has said that it is ready (`code` must print a line)."""
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", code, *words], stdout=subprocess.PIPE, text=True, **options
    )
    process.said = process.stdout.readline().strip()
    return process


def eventually(holds, within_s=5.0):
    """Whether `holds()` becomes true in time."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if holds():
            return True
        time.sleep(0.01)
    return bool(holds())
