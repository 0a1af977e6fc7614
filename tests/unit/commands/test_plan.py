"""Which files of the source are part of a release, and which hosts of a plan."""

from __future__ import annotations

import json

import pytest
from support.builders import hosts_toml, make_inventory, put, run_json

from tfdeploy.commands.plan import source_release, with_hosts
from tfdeploy.config import inventory
from tfdeploy.errors import PlanError


def test_a_notebook_that_a_command_runs_is_pushed_unless_hosts_toml_leaves_it_out(tmp_path):
    for name in ("train.ipynb", "lab/eval.ipynb", "other.ipynb", "lib.py"):
        put(tmp_path, name)
    train = '[training.worker]\ncommand = ["papermill", "./train.ipynb", "/tmp/out.ipynb"]'
    evaluate = '[training.evaluator]\ncommand = ["jupyter", "execute", "lab/eval.ipynb"]'

    def pushed(top=""):
        put(tmp_path, "hosts.toml", hosts_toml(training=f"{train}\n{evaluate}", top=top))
        return {*source_release(inventory.load(tmp_path / "hosts.toml")).manifest}

    assert pushed() == {"lib.py", "train.ipynb", "lab/eval.ipynb"}
    assert pushed('source.exclude = ["lab/"]') == {"lib.py", "train.ipynb"}


def test_the_hosts_files_of_earlier_runs_are_not_pushed_whatever_their_names(tmp_path):
    for name in ("hosts.toml", "cluster", "train.py"):
        put(tmp_path, name, hosts_toml() if name != "train.py" else "x")
    for number, name in enumerate(["cluster", "train.py"]):
        run = f"runs/20260101-00000{number}-aaaa/run.json"
        put(tmp_path, run, json.dumps(run_json(hosts_file=name)))
    assert {*source_release(inventory.load(tmp_path / "hosts.toml")).manifest} == {"train.py"}


def test_an_inventory_is_limited_to_the_named_hosts():
    hosts = make_inventory('[hosts."gpu-[01-04]"]\nworkers = 1')
    limited = with_hosts(hosts, ["gpu-[02-03]"])
    assert [host.name for host in limited.hosts] == ["gpu-02", "gpu-03"]
    with pytest.raises(PlanError, match='there is no host "gpu-05"'):
        with_hosts(hosts, ["gpu-05"])
