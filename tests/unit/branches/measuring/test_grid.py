"""The cells of a sweep and their plans: the same hosts with other numbers of ps and workers."""

from __future__ import annotations

import pytest
from support.builders import FILE, make_inventory

from tfdeploy.branches.measuring.grid import cells, default_ps, rescale
from tfdeploy.branches.measuring.speed.results import Cell
from tfdeploy.config import inventory as inventories
from tfdeploy.config import toml_text
from tfdeploy.errors import PlanError
from tfdeploy.planning import placing
from unit.cli.test_cli import tfdeploy  # noqa: F401


def test_the_smallest_cell_comes_first():
    assert cells("2, 1", "4,1,1") == (Cell(1, 1), Cell(1, 2), Cell(4, 1), Cell(4, 2))
    assert str(Cell(4, 1)) == "1 ps, 4 workers"


@pytest.mark.parametrize(
    ("ps", "workers"), [("", "1"), ("1", "0"), ("-1", "1"), ("1,", "1"), ("1", "1.5"), ("1", "²")]
)
def test_numbers_that_are_not_whole_are_refused(ps, workers):
    with pytest.raises(PlanError, match="expected whole numbers from"):
        cells(ps, workers)


def test_the_default_is_no_ps_if_the_hosts_file_has_none():
    assert default_ps(make_inventory("[hosts.a]\nps = 1\n[hosts.b]\nworkers = 1\n")) == "1"
    assert default_ps(make_inventory("[hosts.b]\nworkers = 2\n")) == "0"


# The command

HOSTS_TOML = """
project = "p"
[training]
command = "python train.py"
role = "flags"
checkpoint_dir = "{checkpoints}"
[hosts.here]
transport = "local"
python = "python3.99"
ps = 1
workers = 2
ports = "2222-2225"
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "train.py").write_text("pass\n")
    (tmp_path / "hosts.toml").write_text(HOSTS_TOML.format(checkpoints="checkpoints"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--workers", "1,x"), '--workers: found "1,x", expected whole numbers from 1 to 1024'),
        (("--workers", "0"), '--workers: found "0", expected whole numbers from 1'),
        (("--workers", "1", "--ps", ""), '--ps: found "", expected whole numbers from 0'),
        (("--workers", "1", "--seconds", "nan"), "Invalid value for '--seconds'"),
        (("--workers", "1", "--seconds", "inf"), "Invalid value for '--seconds'"),
    ],
)
def test_invalid_options_are_refused(folder, tfdeploy, options, message):  # noqa: F811
    code, _, err = tfdeploy("sweep", *options)
    assert (code, message in err) == (2, True), err
    assert not (folder / "runs").exists()


def test_all_cells_that_do_not_fit_are_named_before_anything_runs(folder, tfdeploy):  # noqa: F811
    code, _, err = tfdeploy("sweep", "--workers", "1,2,3,4")
    assert code == 2
    assert "1 ps, 3 workers: the ports and GPUs of here suffice for only 2 workers" in err
    assert "1 ps, 4 workers: the ports and GPUs of here suffice for only 2 workers" in err
    assert "1 ps, 2 workers" not in err
    assert not (folder / "runs").exists()


def test_runs_that_would_share_a_checkpoint_folder_are_refused(folder, tfdeploy):  # noqa: F811
    (folder / "hosts.toml").write_text(HOSTS_TOML.format(checkpoints="/tmp/shared"))
    code, _, err = tfdeploy("sweep", "--workers", "1")
    assert code == 2
    assert "training.checkpoint_dir is /tmp/shared: each run would continue from" in err


def test_runs_that_would_each_choose_their_hosts_are_refused(folder, tfdeploy):  # noqa: F811
    text = HOSTS_TOML.format(checkpoints="checkpoints").replace("workers = 2", "gpus = 2")
    (folder / "hosts.toml").write_text(text.replace("role", "workers = 2\nrole"))
    code, _, err = tfdeploy("sweep", "--workers", "1")
    assert code == 2
    assert "training.workers: each run would use other hosts" in err


LIMIT_S = 300.0
THREE = "[hosts.a]\nps = 1\n[hosts.b]\nworkers = 2\n[hosts.c]\nworkers = 1\n"


def with_addresses(inventory):
    hosts = (h.copy_with({"address": h.address or h.name}) for h in inventory.hosts)
    return inventory.copy_with({"hosts": tuple(hosts)})


def rescaled(hosts, ps, workers, **keys):
    inventory = with_addresses(make_inventory(hosts, **keys))
    return rescale(inventory, ps, workers, LIMIT_S)


def placements(hosts, ps, workers):
    """Return the host of each task after rescaling."""
    plan = placing.make_plan_from_addresses(rescaled(hosts, ps, workers))
    return {str(p.task): p.host for p in plan.placements}


def refusal(hosts, ps, workers):
    with pytest.raises(PlanError) as error:
        placing.make_plan_from_addresses(rescaled(hosts, ps, workers))
    return error.value


# Fewer


def test_the_first_tasks_stay_on_their_hosts():
    assert placements(THREE, 1, 2) == {"ps:0": "a", "worker:0": "b", "worker:1": "b"}
    assert placements(THREE, 1, 3) == {
        "ps:0": "a", "worker:0": "b", "worker:1": "b", "worker:2": "c",
    }  # fmt: skip


def test_a_host_without_a_task_is_left_out():
    assert [host.name for host in rescaled(THREE, 1, 1).hosts] == ["a", "b"]


def test_there_may_be_no_ps():
    assert placements(THREE, 0, 2) == {"worker:0": "b", "worker:1": "b"}


# More


def test_each_further_task_goes_to_the_host_that_runs_the_fewest():
    assert placements(THREE, 2, 6) == {
        "ps:0": "a", "ps:1": "a",
        "worker:0": "b", "worker:1": "b", "worker:2": "b",
        "worker:3": "c", "worker:4": "c", "worker:5": "c",
    }  # fmt: skip
    assert [h.workers for h in rescaled(THREE, 1, 4).hosts] == [0, 2, 2]
    assert [h.workers for h in rescaled(THREE, 1, 5).hosts] == [0, 3, 2]


def test_gpus_limit_the_number_of_tasks():
    two = "[hosts.a]\nps = 1\n[hosts.b]\nworkers = 1\ngpus = 2\n[hosts.c]\nworkers = 1\ngpus = 4\n"
    assert [host.workers for host in rescaled(two, 1, 6).hosts] == [0, 2, 4]
    error = refusal(two, 1, 7)
    assert error.message == "the ports and GPUs of b, c suffice for only 6 workers"
    assert error.hint == "choose fewer, or set workers on more hosts"


def test_per_gpu_becomes_a_number():
    two = "[hosts.a]\nps = 1\n[hosts.b]\nworkers = 'per-gpu'\ngpus = 4\ngpus_per_worker = 2\n"
    assert [host.workers for host in rescaled(two, 1, 1).hosts] == [0, 1]
    assert refusal(two, 1, 3).message == "the ports and GPUs of b suffice for only 2 workers"


def test_a_separate_chief_keeps_its_gpu():
    two = "[hosts.a]\nps = 1\n[hosts.b]\nchief = true\ngpus = 2\nworkers = 1\n"
    assert placements(two, 1, 1) == {"ps:0": "a", "worker:0": "b", "chief:0": "b"}
    assert refusal(two, 1, 2).message == "the ports and GPUs of b suffice for only 1 worker"


def test_ports_limit_the_number_of_tasks_and_the_run_needs_one():
    one = '[hosts.a]\nps = 1\nworkers = 1\nports = "2222-2226"\n'
    assert len(placements(one, 2, 2)) == 4
    assert refusal(one, 1, 4).message == "the ports and GPUs of a suffice for only 3 workers"
    assert refusal(one, 4, 1).message == "the ports and GPUs of a suffice for only 3 ps"


def test_automatic_ports_are_no_limit():
    assert len(placements('[hosts.a]\nps = 1\nworkers = 1\nports = "auto"\n', 20, 90)) == 110


def test_a_job_that_no_host_runs_is_refusal():
    error = refusal("[hosts.a]\nworkers = 2\n", 1, 1)
    assert (error.message, error.hint) == ("no host runs ps", "set ps = 1 on a host")


# Other changes


def test_evaluator_spares_replicas_and_restarts_are_left_out():
    hosts = THREE + "[hosts.e]\nevaluator = true\n[hosts.s]\nspare = true\n"
    top = "[restart]\nfrozen_timeout_s = 30\n[restart.worker]\nattempts = 20\n"
    inventory = rescaled(hosts, 1, 3, training="replicas = 1\nstop_grace_s = 3", top=top)
    assert [host.name for host in inventory.hosts] == ["a", "b", "c"]
    assert (inventory.training.replicas, inventory.training.stop_grace_s) == (0, 3)
    policies = [inventory.restart.for_job(job) for job in ("ps", "worker", "chief")]
    assert [policy.attempts for policy in policies] == [0, 0, 0]
    assert [policy.frozen_timeout_s for policy in policies] == [30, 30, 30]


def test_the_run_has_a_time_limit():
    assert rescaled(THREE, 1, 3).training.max_duration_s == LIMIT_S
    users = rescaled(THREE, 1, 3, training="max_duration_s = 9")
    assert users.training.max_duration_s == 9
    longer = rescaled(THREE, 1, 3, training="max_duration_s = 900")
    assert longer.training.max_duration_s == LIMIT_S


def test_an_evaluator_is_left_out_and_its_hosts_worker_stays():
    hosts = "[hosts.a]\nps = 1\nworkers = 1\nevaluator = true\n"
    assert "evaluator:0" not in placements(hosts, 1, 1)


def test_a_rescaled_inventory_can_be_written_and_read():
    inventory = rescaled(THREE, 2, 4)
    assert inventories.parse(toml_text.write(inventory.to_toml()), FILE) == inventory
