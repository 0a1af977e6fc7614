"""What runs were started with: only what differs is listed, and secrets only as differing."""

from __future__ import annotations

import json
from dataclasses import replace

from support.builders import make_run
from support.finished import HOSTS, ONE, TWO, write_history

from tfdeploy.branches.measuring.run_report.summary import ABSENT, DifferenceRow, different_settings


def found(runs):
    return different_settings(runs, str)


def made(folder, run_id=ONE, hosts=HOSTS, **toml):
    return make_run(folder, run_id=run_id, hosts=hosts, **toml)


def test_equal_runs_differ_in_nothing(tmp_path):
    one, two = made(tmp_path), made(tmp_path, TWO)
    assert found([one, two]) == (DifferenceRow("release", ("f00d", "f00d"), False),)


def test_keys_of_hosts_toml_the_release_and_data_sets_are_compared(tmp_path):
    one = made(tmp_path)
    more = HOSTS.replace("workers = 2", "workers = 1")
    two = replace(
        made(tmp_path, TWO, more, training="replicas = 1"), release="beef", data={"d": "x"}
    )
    assert found([one, two]) == (
        DifferenceRow("release", ("f00d", "beef"), True),
        DifferenceRow("hosts.b.workers", ("2", "1"), True),
        DifferenceRow("data d", (ABSENT, "x"), True),
        DifferenceRow("training.replicas", (ABSENT, "1"), True),
    )


def test_variables_that_differ_are_marked_and_their_values_hidden(tmp_path):
    one = made(tmp_path, training='env = { URL = "a", SEED = "1" }')
    two = made(tmp_path, TWO, training='env = { URL = "b", SEED = "2" }')
    assert found([one, two])[1:] == (
        DifferenceRow("training.env.URL", ("(hidden)", "(hidden)"), True),
        DifferenceRow("training.env.SEED", ("1", "2"), True),
    )


def test_where_a_run_notifies_is_hidden(tmp_path):
    one = made(tmp_path, top='[notify]\non_end = "https://chat.example/T0/s3cret"')
    assert found([one, made(tmp_path, TWO)])[1:] == (
        DifferenceRow("notify.on_end", ("(hidden)", ABSENT), True),
    )


def test_ports_that_a_start_has_chosen_are_no_difference(tmp_path):
    one = replace(made(tmp_path, hosts=HOSTS + '\nports = "3000-3009"'), auto_ports=("b",))
    two = replace(made(tmp_path, hosts=HOSTS + '\nports = "4000-4009"'), auto_ports=("b",))
    assert found([one, two])[1:] == ()
    chosen = replace(two, auto_ports=())
    assert [row.values[0] for row in found([one, chosen])[1:]] == ["auto"]


def test_the_commit_and_what_was_not_committed_are_compared(tmp_path):
    diff = "--- a/train.py\n+++ b/train.py\n@@ -1 +1 @@\n-rate = 1\n+rate = 2\n"
    one = replace(made(tmp_path), source={"commit": "a" * 40, "branch": "main", "diff": ""})
    two = replace(one, source={"commit": "b" * 40, "branch": "main", "diff": diff})
    assert found([one, two])[1:] == (
        DifferenceRow("commit", ("a" * 12, "b" * 12), True),
        DifferenceRow("not committed", (ABSENT, "train.py"), True),
    )
    other = replace(made(tmp_path, TWO), environments={"a": "e1"})
    assert found([made(tmp_path), other])[-1] == DifferenceRow("environment", (ABSENT, "e1"), True)


def test_versions_that_differ_are_named_with_their_hosts(tmp_path):
    def write(run, of_a, of_b):
        run.folder.mkdir(parents=True, exist_ok=True)
        write_history(run, "ps-0", json.dumps({"at": 1, "versions": {"tf": "2", "numpy": of_a}}))
        write_history(run, "worker-1", "[]", json.dumps({"versions": {"tf": "2", "numpy": of_b}}))

    one, two = made(tmp_path), made(tmp_path, TWO)
    write(one, "1.26", "1.26")
    assert len(found([one, two])) == 1  # those of the other run were not collected
    write(two, "1.26", "2.0")
    [row] = found([one, two])[1:]
    assert row == DifferenceRow("version of numpy", ("1.26", "1.26 on a, 2.0 on b"), True)
