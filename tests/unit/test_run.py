"""The record of a run on the controller, and how a run is found by its hosts file."""

from __future__ import annotations

import json
import os
import re
import time
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from support.builders import make_run

from tfdeploy import run as runs
from tfdeploy.config import inventory as inventories
from tfdeploy.config.hosts_file import MISSING_HINT
from tfdeploy.config.models import HostsFile
from tfdeploy.errors import InventoryError, RunError
from tfdeploy.folders import user_folders
from tfdeploy.folders.own_folder import OwnFolder
from tfdeploy.release import snapshot


def error_text(action):
    """Return the text of the error that `action` raises."""
    with pytest.raises((InventoryError, RunError)) as caught:
        action()
    return str(caught.value)


def test_run_ids_start_with_the_time_and_do_not_collide(tmp_path):
    assert re.fullmatch(r"\d{8}-\d{6}-[0-9a-f]{4}", runs.new_id(tmp_path))
    assert len({runs.new_id(tmp_path) for _ in range(5)}) > 1


def test_the_age_of_a_run_follows_from_its_id():
    one, other = runs.age_s("20260501-101500-3f2a"), runs.age_s("20260501-121500-3f2a")
    assert round(one - other) == 2 * 3600
    assert (runs.age_s("my run"), runs.age_s("20269999-101500-3f2a")) == (0, 0)


def test_the_runs_folder_is_never_part_of_a_release(tmp_path):
    """Another hosts file may push a folder that contains the first one's runs."""
    (tmp_path / "train.py").write_text("")
    (tmp_path / "one").mkdir()
    runs.save(make_run(tmp_path / "one"))
    assert {*snapshot.take(tmp_path, ()).manifest} == {"train.py"}


def test_a_runs_folder_that_exists_stays_as_it_is(tmp_path):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "README").write_text("my runs")
    runs.save(make_run(tmp_path))
    assert not (tmp_path / "runs" / ".gitignore").exists()


def test_a_runs_folder_that_a_killed_command_has_made_is_excluded_from_git(tmp_path):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / ".tfdeploy-0123456789abcdef.new").write_text("*")
    runs.save(make_run(tmp_path))
    assert (tmp_path / "runs" / ".gitignore").read_text() == "*\n"
    assert not [*tmp_path.rglob(".tfdeploy-*")]


@pytest.mark.parametrize("of_wrong_clock", ["20991231-235959-ffff", "20991231-235959-7f00"])
def test_a_run_id_sorts_after_one_of_a_clock_that_was_ahead(tmp_path, of_wrong_clock):
    runs.save(make_run(tmp_path, run_id="20260101-000000-aaaa"))
    runs.save(make_run(tmp_path, run_id=of_wrong_clock))
    runs.save(make_run(tmp_path, run_id="sweep"))
    started = runs.new_id(tmp_path / "runs")
    assert re.fullmatch(r"\d{8}-\d{6}-[0-9a-f]{4}", started)
    assert started > of_wrong_clock


IMPOSSIBLE = (
    *("99999999-999999-ffff", "99991231-235959-ffff", "20261301-000000-ffff"),
    *("00000000-000000-ffff", "２０２６0101-000000-ffff", "20260101-000000-ffff\n", "zzz"),
)


def test_a_folder_with_an_impossible_date_is_older_than_every_run(tmp_path):
    """Nobody can make it the newest run by its name."""
    runs.save(make_run(tmp_path, run_id="20260101-000000-aaaa"))
    for run_id in IMPOSSIBLE:
        runs.save(make_run(tmp_path, run_id=run_id))
    base, now = tmp_path / "runs", f"{datetime.now(UTC):%Y%m%d}"
    assert now <= runs.new_id(base)[:8] < "2100"
    assert runs.load(tmp_path / "hosts.toml").id == runs.run_ids(base)[-1] == "20260101-000000-aaaa"
    assert [runs.age_s(run_id) for run_id in IMPOSSIBLE] == [0.0] * len(IMPOSSIBLE)


@pytest.mark.parametrize("starts", ["-1", "1e300", "NaN", "Infinity", "9" * 4300, "[1]", '"x"'])
def test_an_impossible_number_of_starts_is_refused(tmp_path, starts):
    runs.save(make_run(tmp_path))
    file = tmp_path / "runs/20260101-000000-aaaa/run.json"
    file.write_text(file.read_text().replace('"starts": 0', f'"starts": {starts}'))
    assert "record of run 20260101-000000-aaaa is broken" in error_text(
        lambda: runs.load(tmp_path / "hosts.toml", "20260101-000000-aaaa")
    )


@pytest.mark.parametrize("name", ["x" * 300, "a\0b", "\ud800"])
def test_a_name_that_no_folder_can_have_is_no_run(tmp_path, name):
    runs.save(make_run(tmp_path))
    assert "there is no run" in error_text(lambda: runs.load(tmp_path / "hosts.toml", name))


def test_run_ids_sort_by_age_within_a_second(tmp_path):
    ids = []
    for _ in range(20):
        ids.append(runs.new_id(tmp_path))
        time.sleep(0.01)
    assert ids == sorted(ids)


def test_load_returns_a_run_as_it_was_saved(tmp_path):
    saved = make_run(tmp_path, training='role = "flags"\nrole_args = ["\\\\x41 $(id) \'\\""]')
    runs.save(saved)
    loaded = runs.load(tmp_path / "hosts.toml")
    assert (loaded.id, loaded.release, loaded.agent) == (saved.id, "f00d", "a9e")
    assert loaded.plan == saved.plan
    assert loaded.inventory.training == saved.inventory.training
    assert loaded.inventory.file == saved.inventory.file
    assert loaded.folder == saved.folder == tmp_path / "runs" / saved.id


@pytest.mark.parametrize("word", ["😀", "é漢", "\\u2028", "\\u0085", "a\\rb"])
def test_a_record_keeps_any_unicode_text(tmp_path, word):
    saved = make_run(tmp_path, training=f'env = {{WORD = "{word}"}}')
    runs.save(saved)
    assert runs.load(tmp_path / "hosts.toml").inventory.training == saved.inventory.training


def test_a_record_keeps_the_resolved_addresses(tmp_path):
    runs.save(make_run(tmp_path))
    loaded = runs.load(tmp_path / "hosts.toml")
    assert {host.name: host.address for host in loaded.inventory.hosts} == {
        "p": "p.example",
        "w": "10.0.0.2",
        "idle": "idle.example",
    }


@pytest.fixture
def parsed(monkeypatch):
    """The files that were validated as a hosts.toml is."""
    files, parse_record = [], inventories.parse_record

    def recording(text, file, hosts_file):
        files.append(file)
        return parse_record(text, file, hosts_file)

    monkeypatch.setattr(inventories, "parse_record", recording)
    return files


EVERYTHING = """
save_on_stop = true
role = "flags"
[training.worker]
outputs = ["models/", "!*.tmp"]
[data."data/a"]
jobs = ["worker"]
[env]
requirements = ["numpy"]
[restart]
exits = [1, "SIGKILL"]
[restart.ps]
attempts = 3
[notify]
on_end = "https://example.org/hook"
"""


@pytest.mark.parametrize("training", ["", EVERYTHING])
def test_a_record_is_read_as_it_was_planned_without_validating_it(tmp_path, parsed, training):
    saved = make_run(tmp_path, training=training)
    runs.save(saved)
    loaded = runs.load(tmp_path / "hosts.toml")
    assert (parsed, loaded) == ([], saved)
    assert runs.to_record(loaded) == runs.to_record(saved)


def test_a_record_without_a_plan_is_validated_and_planned(tmp_path, parsed):
    saved = make_run(tmp_path, training=EVERYTHING)
    runs.save(saved)
    (saved.folder / "plan").unlink()
    assert runs.load(tmp_path / "hosts.toml") == saved
    assert parsed == [saved.folder / "hosts.toml"]


def forge_address(folder):
    plan = folder / "plan"
    plan.write_text(plan.read_text().replace("10.0.0.2", "-oProxyCommand=evil"))


def lose_key(folder):
    (user_folders.config_folder() / "key").write_bytes(bytes(32))


def show_key(folder):
    (user_folders.config_folder() / "key").chmod(0o644)


def truncate(folder):
    (folder / "plan").write_text((folder / "plan").read_text()[:100])


@pytest.mark.parametrize("change", [forge_address, lose_key, show_key, truncate])
def test_a_plan_that_this_user_has_not_signed_is_not_used(tmp_path, monkeypatch, parsed, change):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    saved = make_run(tmp_path)
    runs.save(saved)
    change(saved.folder)
    assert runs.load(tmp_path / "hosts.toml") == saved
    assert parsed == [saved.folder / "hosts.toml"]


def test_a_signed_plan_is_not_used_for_a_run_in_another_folder(tmp_path, parsed):
    (tmp_path / "one").mkdir()
    runs.save(make_run(tmp_path / "one"))
    (tmp_path / "one").rename(tmp_path / "two")
    loaded = runs.load(tmp_path / "two" / "hosts.toml")
    assert loaded.inventory.file == tmp_path / "two" / "hosts.toml"
    assert len(parsed) == 1


def test_what_the_user_changes_in_a_record_is_used(tmp_path):
    saved = make_run(tmp_path)
    runs.save(saved)
    recorded = saved.folder / "hosts.toml"
    recorded.write_text(recorded.read_text().replace("10.0.0.2", "10.0.0.3"))
    loaded = runs.load(tmp_path / "hosts.toml")
    assert loaded.inventory.host("w").address == "10.0.0.3"


def test_a_record_is_read_without_its_users_key_folder(tmp_path, monkeypatch):
    (tmp_path / "home").write_text("a file")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    saved = make_run(tmp_path)
    runs.save(saved)
    assert runs.load(tmp_path / "hosts.toml") == saved


def test_a_record_does_not_change_with_the_hosts_file(tmp_path):
    saved = make_run(tmp_path)
    runs.save(saved)
    (tmp_path / "hosts.toml").write_text("changed")
    assert runs.load(tmp_path / "hosts.toml").plan == saved.plan


def test_only_the_user_can_read_a_record_whatever_the_umask(tmp_path):
    saved = make_run(tmp_path)
    before = os.umask(0)
    try:
        runs.save(saved)
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in saved.folder.iterdir()}
    assert modes == {"run.json": 0o600, "hosts.toml": 0o600, "plan": 0o600}
    assert saved.folder.stat().st_mode & 0o777 == 0o700


def test_a_record_is_not_written_through_a_link(tmp_path):
    saved = make_run(tmp_path)
    saved.folder.mkdir(parents=True)
    (tmp_path / "victim").write_text("kept")
    for name in ("run.json", ".run.json.new", "hosts.toml", ".hosts.toml.new", "plan"):
        (saved.folder / name).symlink_to(tmp_path / "victim")
    runs.save(saved)
    assert (tmp_path / "victim").read_text() == "kept"
    assert not (saved.folder / "run.json").is_symlink()


def test_load_returns_the_newest_run_of_the_hosts_file_by_default(tmp_path):
    runs.save(make_run(tmp_path, run_id="20260101-000000-aaaa"))
    runs.save(make_run(tmp_path, run_id="20260103-000000-aaaa"))
    runs.save(make_run(tmp_path, run_id="20260102-000000-aaaa"))
    runs.save(make_run(tmp_path, name="other.toml", run_id="20260104-000000-aaaa"))
    assert runs.load(tmp_path / "hosts.toml").id == "20260103-000000-aaaa"
    assert runs.load(tmp_path / "other.toml").id == "20260104-000000-aaaa"


def test_load_skips_the_runs_of_a_sweep_unless_one_is_named(tmp_path):
    sweep_run = replace(make_run(tmp_path, run_id="20260102-000000-aaaa"), by_id_only=True)
    runs.save(sweep_run)
    file = tmp_path / "hosts.toml"
    assert "no run was started from" in error_text(lambda: runs.load(file))
    runs.save(make_run(tmp_path, run_id="20260101-000000-aaaa"))
    assert runs.load(file).id == "20260101-000000-aaaa"
    assert runs.load(file, sweep_run.id).by_id_only
    assert not runs.load(file).by_id_only


def test_load_finds_a_run_by_its_id(tmp_path):
    runs.save(make_run(tmp_path, run_id="20260101-000000-aaaa"))
    runs.save(make_run(tmp_path, run_id="20260102-000000-aaaa"))
    assert runs.load(tmp_path / "hosts.toml", "20260101-000000-aaaa").id == "20260101-000000-aaaa"


def test_the_hint_for_an_unknown_run_lists_the_newest_ones(tmp_path):
    for day in (1, 2, 3, 4):
        run = make_run(tmp_path, run_id=f"2026010{day}-000000-aaaa")
        runs.save(replace(run, name="wide" if day == 3 else ""))
    assert error_text(lambda: runs.load(tmp_path / "hosts.toml", "nope")) == (
        f'there is no run "nope" in {tmp_path / "runs"}\n'
        "  its newest runs are 20260104-000000-aaaa, 20260103-000000-aaaa (wide), "
        "20260102-000000-aaaa"
    )


def test_a_task_in_place_of_a_run_is_called_one_with_what_to_type(tmp_path):
    runs.save(make_run(tmp_path))
    for task, quoted in (("worker:0", "worker:0"), ("ps:[0-3]", "'ps:[0-3]'"), ("ps", "ps")):
        assert error_text(lambda: runs.load(tmp_path / "hosts.toml", task)) == (  # noqa: B023
            f'there is no run "{task}" in {tmp_path / "runs"}\n'
            f"  it names a task: tfdeploy status --task {quoted}, or tfdeploy logs {quoted}"
        )


def test_the_hint_for_an_unknown_run_says_if_there_are_no_runs(tmp_path):
    make_run(tmp_path)
    assert error_text(lambda: runs.load(tmp_path / "hosts.toml", "nope")) == (
        f'there is no run "nope" in {tmp_path / "runs"}\n'
        "  it has no runs yet; start one: tfdeploy run, or tfdeploy start"
    )


def test_load_refuses_a_hosts_file_without_runs(tmp_path):
    runs.save(make_run(tmp_path, name="other.toml"))
    make_run(tmp_path)
    file = tmp_path / "hosts.toml"
    assert error_text(lambda: runs.load(file)) == (
        f"no run was started from {file} yet\n  start one: tfdeploy run, or tfdeploy start"
    )


def test_load_refuses_a_missing_hosts_file(tmp_path):
    file = tmp_path / "hosts.toml"
    assert error_text(lambda: runs.load(file)) == (
        f"{file}: there is no such file\n  {MISSING_HINT}"
    )


def test_load_refuses_a_truncated_record(tmp_path):
    saved = make_run(tmp_path)
    runs.save(saved)
    (saved.folder / "run.json").write_text('{"release": "f0')
    assert error_text(lambda: runs.load(tmp_path / "hosts.toml", saved.id)) == (
        f"the record of run {saved.id} is broken: {saved.folder / 'run.json'}"
    )


def test_a_truncated_record_does_not_hide_an_older_run(tmp_path):
    runs.save(make_run(tmp_path, run_id="20260101-000000-aaaa"))
    broken = make_run(tmp_path, run_id="20260102-000000-aaaa")
    runs.save(broken)
    (broken.folder / "run.json").write_text("")
    assert runs.load(tmp_path / "hosts.toml").id == "20260101-000000-aaaa"


def test_delete_record_makes_the_older_run_the_default_again(tmp_path):
    runs.save(make_run(tmp_path, run_id="20260101-000000-aaaa"))
    refused_start = make_run(tmp_path, run_id="20260102-000000-aaaa")
    runs.save(refused_start)
    runs.delete_record(refused_start)
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
def test_flags_name_the_hosts_file_only_if_it_is_not_the_default(
    tmp_path, monkeypatch, name, flags
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "deep").mkdir()
    assert make_run(tmp_path, name=name, run_id="r1").flags == flags


def test_flags_name_the_hosts_file_unless_the_environment_does(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lab, usual = (make_run(tmp_path, name=name, run_id="r") for name in ("lab.toml", "hosts.toml"))
    assert (lab.flags, usual.flags) == ("--hosts lab.toml --run r", "--run r")
    monkeypatch.setenv("TFDEPLOY_HOSTS", "lab.toml")
    assert (lab.flags, usual.flags) == ("--run r", "--hosts hosts.toml --run r")


def test_flags_work_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir("/")
    file = tmp_path / "hosts.toml"
    assert make_run(tmp_path, run_id="r1").flags == f"--hosts {file.relative_to('/')} --run r1"
    monkeypatch.chdir("/usr")
    assert make_run(tmp_path, run_id="r1").flags == f"--hosts {file} --run r1"


def test_a_resumed_run_replaces_its_record(tmp_path):
    first = make_run(tmp_path)
    runs.save(first)
    runs.save(make_run(tmp_path, hosts="[hosts.w]\nworkers = 3"))
    loaded = runs.load(tmp_path / "hosts.toml", first.id)
    assert [str(p.task) for p in loaded.plan.placements] == ["worker:0", "worker:1", "worker:2"]


def test_save_names_a_folder_that_can_not_be_written(tmp_path):
    saved = make_run(tmp_path)
    (tmp_path / "runs").write_text("a file")
    assert (
        error_text(lambda: runs.save(saved))
        == f"can't write {saved.folder.parent}: Not a directory"
    )


def test_a_record_keeps_which_hosts_chose_their_ports_at_the_start(tmp_path):
    runs.save(replace(make_run(tmp_path), auto_ports=("w", "p")))
    assert runs.load(tmp_path / "hosts.toml").auto_ports == ("w", "p")


def test_a_record_keeps_the_releases_of_its_data_sets(tmp_path):
    runs.save(replace(make_run(tmp_path), data={"data/a": "data-a-1"}))
    assert runs.load(tmp_path / "hosts.toml").data == {"data/a": "data-a-1"}


def test_a_record_of_another_version_says_which_key_it_lacks(tmp_path):
    saved = make_run(tmp_path)
    runs.save(saved)
    file = saved.folder / "run.json"
    record = json.loads(file.read_text())
    for key in record:
        file.write_text(json.dumps({name: record[name] for name in record if name != key}))
        if key == "folder":  # only hosts compare it
            assert runs.load(tmp_path / "hosts.toml", saved.id) == saved
            continue
        assert error_text(lambda: runs.load(tmp_path / "hosts.toml", saved.id)) == (
            f"the record of run {saved.id} has no '{key}': {file}\n"
            "  if another version of tfdeploy started the run, use that one for it"
        )


def test_a_record_of_another_version_says_which_key_is_unknown(tmp_path):
    saved = make_run(tmp_path)
    runs.save(saved)
    file = saved.folder / "hosts.toml"
    file.write_text(file.read_text() + "[later]\nx = 1\n")
    assert error_text(lambda: runs.load(tmp_path / "hosts.toml", saved.id)) == (
        f"{file}: later: unknown key; expected one of {', '.join(HostsFile.key_names())}\n"
        f"  rm {file} has it restored from the run's hosts; "
        "if another version of tfdeploy started the run, use that one for it"
    )


def test_run_json_holds_every_field(tmp_path):
    saved = make_run(tmp_path)
    runs.save(saved)
    assert json.loads((saved.folder / "run.json").read_text()) == {
        "release": "f00d",
        "agent": "a9e",
        "hosts_file": "hosts.toml",
        "folder": str(tmp_path),
        "auto_ports": [],
        "launched": "",
        "data": {},
        "environments": {},
        "by_id_only": False,
        "starts": 0,
        "name": "",
        "words": [],
        "left_out": [],
        "source": {},
        "written": {},
    }


def test_an_interrupted_save_leaves_the_whole_new_record(tmp_path, monkeypatch):
    saved = make_run(tmp_path)
    runs.save(saved)
    write = OwnFolder.write

    def is_killed_at_run_json(folder, name, blocks):
        if name == "run.json":
            raise KeyboardInterrupt
        write(folder, name, blocks)

    monkeypatch.setattr(OwnFolder, "write", is_killed_at_run_json)
    with pytest.raises(KeyboardInterrupt):
        runs.save(replace(saved, starts=2, left_out=("gone",)))
    found = runs.load(tmp_path / "hosts.toml")
    assert (found.starts, found.left_out) == (2, ("gone",))


@pytest.mark.parametrize("text", ['{"run_json": 1, "hosts_toml": 2}', "[1]", "{}", "[" * 100_000])
def test_a_record_that_somebody_else_wrote_as_one_file_is_broken_or_not_taken(tmp_path, text):
    saved = make_run(tmp_path)
    runs.save(saved)
    (saved.folder / ".record.json").write_text(text)
    try:
        assert runs.load(tmp_path / "hosts.toml") == saved
    except RunError as error:
        assert "is broken" in str(error)


def test_a_run_is_found_by_its_name_the_newest_first(tmp_path):
    for run_id, name in [("1", "wide"), ("2", "wide"), ("3", "deep"), ("wide-1", "")]:
        runs.save(replace(make_run(tmp_path, run_id=run_id), name=name))
    assert [runs.load(tmp_path / "hosts.toml", run).id for run in ("wide", "deep", "1")] == [
        "2", "3", "1"
    ]  # fmt: skip
    assert 'there is no run "narrow"' in error_text(
        lambda: runs.load(tmp_path / "hosts.toml", "narrow")
    )


def test_the_name_and_the_words_are_kept(tmp_path):
    saved = replace(make_run(tmp_path), name="wide", words=("--lr", "0.1 x"))
    runs.save(saved)
    loaded = runs.load(tmp_path / "hosts.toml")
    assert (loaded.name, loaded.words) == (saved.name, saved.words)


@pytest.mark.parametrize("name", ["a/b", "..", "a\nb"])
def test_a_record_with_a_name_that_is_no_word_is_broken(tmp_path, name):
    runs.save(replace(make_run(tmp_path), name=name))
    assert "is broken" in error_text(
        lambda: runs.load(tmp_path / "hosts.toml", "20260101-000000-aaaa")
    )


def test_a_record_whose_numbers_are_too_large_is_broken(tmp_path):
    saved = make_run(tmp_path)
    runs.save(saved)
    file = saved.folder / "run.json"
    file.write_text(file.read_text().replace('"starts": 0', '"starts": 1e999'))
    assert "is broken" in error_text(lambda: runs.load(tmp_path / "hosts.toml", saved.id))


def test_an_invalid_hosts_toml_of_a_record_is_named_itself(tmp_path):
    saved = make_run(tmp_path)
    runs.save(saved)
    (saved.folder / "hosts.toml").write_text("hosts = 1")
    message = f"{saved.folder}/hosts.toml: hosts: found 1; expected the table"
    with pytest.raises(InventoryError, match=re.escape(message)):
        runs.load(tmp_path / "hosts.toml", saved.id)
