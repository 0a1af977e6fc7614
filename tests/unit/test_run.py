"""The record at home: what was asked for, found again by its hosts file."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace

import pytest

from tfdeploy import inventory as inventories
from tfdeploy import plan as plans
from tfdeploy import release
from tfdeploy import run as runs
from tfdeploy.errors import RunError
from tfdeploy.run import Run
from unit.made import text

HOSTS = """
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


def made(folder, name="hosts.toml", run_id="20260101-000000-aaaa", hosts=HOSTS, **changes):
    file = folder / name
    file.write_text(text(hosts, **changes))
    loaded = inventories.load(file)
    addresses = {host.name: host.address or f"{host.name}.example" for host in loaded.hosts}
    hosts = (host.model_copy(update={"address": addresses[host.name]}) for host in loaded.hosts)
    resolved = loaded.model_copy(update={"hosts": tuple(hosts)})
    return Run(run_id, "f00d", "a9e", resolved, plans.make(resolved, addresses))


def refused(act):
    with pytest.raises(RunError) as caught:
        act()
    return str(caught.value)


def test_ids_sort_by_their_time_and_never_meet():
    assert re.fullmatch(r"\d{8}-\d{6}-[0-9a-f]{4}", runs.new_id())
    assert len({runs.new_id() for _ in range(5)}) > 1


def test_what_runs_leave_is_nobodys_source(tmp_path):
    """A hosts file beside this one may push the folder that both lie in."""
    (tmp_path / "train.py").write_text("")
    (tmp_path / "one").mkdir()
    runs.save(made(tmp_path / "one"))
    assert {*release.snapshot(tmp_path, ()).manifest} == {"train.py", "one/hosts.toml"}


def test_a_folder_that_the_user_has_already_stays_as_it_is(tmp_path):
    (tmp_path / "runs").mkdir()
    runs.save(made(tmp_path))
    assert not (tmp_path / "runs" / ".gitignore").exists()


def test_ids_sort_by_age_within_a_second_too():
    ids = []
    for _ in range(20):
        ids.append(runs.new_id())
        time.sleep(0.01)
    assert ids == sorted(ids)


def test_a_run_is_found_again_as_it_was(tmp_path):
    saved = made(tmp_path, training='role = "flags"\nrole_args = ["\\\\x41 $(id) \'\\""]')
    runs.save(saved)
    loaded = runs.load(tmp_path / "hosts.toml")
    assert (loaded.id, loaded.release, loaded.agent) == (saved.id, "f00d", "a9e")
    assert loaded.plan == saved.plan
    assert loaded.inventory.training == saved.inventory.training
    assert loaded.inventory.file == saved.inventory.file
    assert loaded.folder == saved.folder == tmp_path / "runs" / saved.id


@pytest.mark.parametrize("word", ["😀", "é漢", "\\u2028", "\\u0085", "a\\rb"])
def test_a_run_with_any_word_in_it_is_found_again(tmp_path, word):
    saved = made(tmp_path, training=f'env = {{WORD = "{word}"}}')
    runs.save(saved)
    assert runs.load(tmp_path / "hosts.toml").inventory.training == saved.inventory.training


def test_addresses_are_kept_as_they_were_found(tmp_path):
    runs.save(made(tmp_path))
    loaded = runs.load(tmp_path / "hosts.toml")
    assert {host.name: host.address for host in loaded.inventory.hosts} == {
        "p": "p.example",
        "w": "10.0.0.2",
        "idle": "idle.example",
    }


def test_a_run_stays_as_it_was_when_the_file_changes(tmp_path):
    saved = made(tmp_path)
    runs.save(saved)
    (tmp_path / "hosts.toml").write_text("changed")
    assert runs.load(tmp_path / "hosts.toml").plan == saved.plan


def test_the_newest_run_of_the_same_hosts_file_is_the_default(tmp_path):
    runs.save(made(tmp_path, run_id="20260101-000000-aaaa"))
    runs.save(made(tmp_path, run_id="20260103-000000-aaaa"))
    runs.save(made(tmp_path, run_id="20260102-000000-aaaa"))
    runs.save(made(tmp_path, name="other.toml", run_id="20260104-000000-aaaa"))
    assert runs.load(tmp_path / "hosts.toml").id == "20260103-000000-aaaa"
    assert runs.load(tmp_path / "other.toml").id == "20260104-000000-aaaa"


def test_a_sweeps_runs_are_meant_by_whoever_names_them_alone(tmp_path):
    cell = replace(made(tmp_path, run_id="20260102-000000-aaaa"), of_sweep=True)
    runs.save(cell)
    file = tmp_path / "hosts.toml"
    assert "no run was started from" in refused(lambda: runs.load(file))
    runs.save(made(tmp_path, run_id="20260101-000000-aaaa"))
    assert runs.load(file).id == "20260101-000000-aaaa"
    assert runs.load(file, cell.id).of_sweep
    assert not runs.load(file).of_sweep


def test_a_run_is_found_by_its_id(tmp_path):
    runs.save(made(tmp_path, run_id="20260101-000000-aaaa"))
    runs.save(made(tmp_path, run_id="20260102-000000-aaaa"))
    assert runs.load(tmp_path / "hosts.toml", "20260101-000000-aaaa").id == "20260101-000000-aaaa"


def test_an_unknown_run_is_met_with_the_newest(tmp_path):
    for day in (1, 2, 3, 4):
        runs.save(made(tmp_path, run_id=f"2026010{day}-000000-aaaa"))
    assert refused(lambda: runs.load(tmp_path / "hosts.toml", "nope")) == (
        f'there is no run "nope" in {tmp_path / "runs"}\n'
        "  the newest here are 20260102-000000-aaaa, 20260103-000000-aaaa, 20260104-000000-aaaa"
    )


def test_an_unknown_run_where_there_are_none_says_so(tmp_path):
    made(tmp_path)
    assert refused(lambda: runs.load(tmp_path / "hosts.toml", "nope")) == (
        f'there is no run "nope" in {tmp_path / "runs"}\n  nothing was started here'
    )


def test_that_nothing_was_started_yet_is_said(tmp_path):
    runs.save(made(tmp_path, name="other.toml"))
    made(tmp_path)
    file = tmp_path / "hosts.toml"
    assert refused(lambda: runs.load(file)) == (
        f"no run was started from {file} yet\n  tfdeploy run starts one, or tfdeploy start"
    )


def test_a_missing_hosts_file_is_named(tmp_path):
    file = tmp_path / "hosts.toml"
    assert refused(lambda: runs.load(file)) == (
        f"{file}: there is no such file\n  say --hosts FILE, or go to its folder"
    )


def test_a_record_that_was_cut_is_refused_in_a_sentence(tmp_path):
    saved = made(tmp_path)
    runs.save(saved)
    (saved.folder / "run.json").write_text('{"release": "f0')
    assert refused(lambda: runs.load(tmp_path / "hosts.toml", saved.id)) == (
        f"the record of run {saved.id} is broken: {saved.folder / 'run.json'}"
    )


def test_a_record_that_was_cut_hides_no_other(tmp_path):
    runs.save(made(tmp_path, run_id="20260101-000000-aaaa"))
    broken = made(tmp_path, run_id="20260102-000000-aaaa")
    runs.save(broken)
    (broken.folder / "run.json").write_text("")
    assert runs.load(tmp_path / "hosts.toml").id == "20260101-000000-aaaa"


def test_a_run_that_never_was_is_forgotten(tmp_path):
    runs.save(made(tmp_path, run_id="20260101-000000-aaaa"))
    refused_start = made(tmp_path, run_id="20260102-000000-aaaa")
    runs.save(refused_start)
    runs.forget(refused_start)
    assert runs.load(tmp_path / "hosts.toml").id == "20260101-000000-aaaa"
    assert not refused_start.folder.exists()


@pytest.mark.parametrize(
    ("name", "flags"),
    [
        ("hosts.toml", "--run r1"),
        ("my hosts.toml", "--hosts 'my hosts.toml' --run r1"),
        ("deep/hosts.toml", "--hosts deep/hosts.toml --run r1"),
    ],
)
def test_a_run_is_named_as_one_types_it(tmp_path, monkeypatch, name, flags):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "deep").mkdir()
    assert made(tmp_path, name=name, run_id="r1").flags == flags


def test_a_run_is_named_from_any_other_folder(tmp_path, monkeypatch):
    monkeypatch.chdir("/")
    file = tmp_path / "hosts.toml"
    assert made(tmp_path, run_id="r1").flags == f"--hosts {file.relative_to('/')} --run r1"
    monkeypatch.chdir("/usr")
    assert made(tmp_path, run_id="r1").flags == f"--hosts {file} --run r1"


def test_a_run_that_goes_on_elsewhere_is_found_as_it_is_then(tmp_path):
    first = made(tmp_path)
    runs.save(first)
    runs.save(made(tmp_path, hosts="[hosts.w]\nworkers = 3"))
    loaded = runs.load(tmp_path / "hosts.toml", first.id)
    assert [str(p.task) for p in loaded.plan.placements] == ["worker:0", "worker:1", "worker:2"]


def test_a_folder_that_can_not_be_written_is_named(tmp_path):
    saved = made(tmp_path)
    (tmp_path / "runs").write_text("a file")
    assert refused(lambda: runs.save(saved)) == f"{saved.folder} can't be written: Not a directory"


def test_which_ports_were_found_at_the_start_is_kept(tmp_path):
    runs.save(replace(made(tmp_path), auto_ports=("w", "p")))
    assert runs.load(tmp_path / "hosts.toml").auto_ports == ("w", "p")


def test_which_data_it_began_with_is_kept(tmp_path):
    runs.save(replace(made(tmp_path), data={"data/a": "data-a-1"}))
    assert runs.load(tmp_path / "hosts.toml").data == {"data/a": "data-a-1"}


def test_a_record_from_before_ports_were_found_is_read(tmp_path):
    saved = made(tmp_path)
    runs.save(saved)
    record = json.loads((saved.folder / "run.json").read_text())
    for key in ("auto_ports", "launched", "data", "sweep"):
        del record[key]
    (saved.folder / "run.json").write_text(json.dumps(record))
    loaded = runs.load(tmp_path / "hosts.toml")
    assert (loaded.auto_ports, loaded.launched, loaded.data) == ((), "", {})
    assert not loaded.of_sweep


def test_a_record_says_what_and_by_whom(tmp_path):
    saved = made(tmp_path)
    runs.save(saved)
    assert json.loads((saved.folder / "run.json").read_text()) == {
        "release": "f00d",
        "agent": "a9e",
        "hosts_file": "hosts.toml",
        "auto_ports": [],
        "launched": "",
        "data": {},
        "sweep": False,
    }
