"""Which runs and releases are to go, and what the parts of a run on many hosts come to. Pure."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdeploy.agent.disk import HeldRelease, HeldRun
from tfdeploy.steps.prune import choose
from tfdeploy.steps.runs import Disk, merged, result


def run(number, release="f00d", *, live=False, tasks=(), age_s=1.0, size=10, data=()):
    run_id = number if isinstance(number, str) else f"20260101-{number:06}-abcd"
    return HeldRun(run_id, release, "worker:0", live, dict(tasks), age_s, size, [*data])


def disk(*runs, releases=(), left=0):
    held = tuple(HeldRelease(name, age_s, 5) for name, age_s in releases)
    return Disk(runs, held, left, 1000, 2000)


def going(disks, runs=0, releases=0):
    """What goes from which host: the numbers of runs and the names of releases."""
    chosen = choose(disks, runs, releases)
    return {
        host: [int(run.run.split("-")[1]) for run in what.runs] + [r.release for r in what.releases]
        for host, what in chosen.items()
    }


# choose


def test_the_newest_runs_stay_over_all_hosts_together():
    disks = {"a": disk(run(1), run(2)), "b": disk(run(3), run(1))}
    assert going(disks, runs=2) == {"a": [1], "b": [1]}


def test_runs_are_new_by_their_id_whatever_the_hosts_clocks_say():
    disks = {"a": disk(run(1, age_s=0.0)), "b": disk(run(2, age_s=9e9))}
    assert going(disks, runs=1) == {"a": [1]}


def test_a_run_that_lives_on_one_host_stays_on_all():
    disks = {"a": disk(run(1, live=True)), "b": disk(run(1), run(2))}
    assert going(disks) == {"b": [2]}


def test_a_live_run_is_not_one_of_those_that_are_kept_beside_it():
    disks = {"a": disk(run(1, live=True), run(2), run(3))}
    assert going(disks, runs=1) == {"a": [2]}


def test_the_data_of_runs_that_stay_does_so_too():
    releases = [("code", 9.0), ("a-1", 9.0), ("b-1", 8.0), ("b-2", 7.0)]
    disks = {"a": disk(run(1, data=["b-2"]), run(2, data=["a-1", "b-1"]), releases=releases)}
    assert going(disks, runs=1) == {"a": [1, "code", "b-2"]}


def test_the_newest_releases_of_each_data_set_stay_beside_those_of_the_source():
    releases = [("code1", 9.0), ("code2", 8.0), ("a-1", 7.0), ("a-2", 6.0), ("a-b-1", 5.0)]
    assert going({"h": disk(releases=releases)}, releases=1) == {"h": ["code1", "a-1"]}


def test_the_releases_of_runs_that_stay_do_so_too():
    releases = [("old", 9.0), ("used", 8.0)]
    disks = {"a": disk(run(1, "old"), run(2, "used"), releases=releases)}
    assert going(disks, runs=1) == {"a": [1, "old"]}


def test_a_release_stays_on_a_host_that_the_run_which_uses_it_is_not_on():
    disks = {"a": disk(run(1, "used")), "b": disk(releases=[("used", 1.0), ("old", 1.0)])}
    assert going(disks, runs=1) == {"b": ["old"]}


def test_the_newest_releases_stay_though_no_run_uses_them():
    disks = {"a": disk(releases=[("old", 9.0), ("new", 1.0), ("middle", 5.0)])}
    assert going(disks, releases=2) == {"a": ["old"]}


def test_a_release_is_as_new_as_its_last_push_to_any_host():
    disks = {
        "a": disk(releases=[("again", 9.0), ("other", 5.0)]),
        "b": disk(releases=[("again", 1.0)]),
    }
    assert going(disks, releases=1) == {"a": ["other"]}


def test_what_is_not_named_as_runs_are_is_left_alone_with_its_release():
    disks = {"a": disk(run("backup", "used"), releases=[("used", 1.0)])}
    assert going(disks) == {}


def test_what_broken_pushes_and_removals_left_goes_by_itself():
    chosen = choose({"a": disk(run(1), left=7), "b": disk(run(1))}, 1, 1)
    assert {host: what.left_bytes for host, what in chosen.items()} == {"a": 7}


def test_what_takes_no_room_goes_as_well():
    assert going({"a": disk(run(1, size=0))}) == {"a": [1]}


HELD = st.lists(
    st.builds(run, st.integers(0, 9), st.sampled_from("xyz"), live=st.booleans()), max_size=6
)
DISKS = st.dictionaries(
    st.sampled_from("abc"),
    st.builds(lambda runs: disk(*runs, releases=[(name, 1.0) for name in "xyz"]), HELD),
)


@given(DISKS, st.integers(0, 5), st.integers(0, 3))
def test_nothing_that_lives_or_is_needed_by_what_stays_ever_goes(disks, runs, releases):
    chosen = choose(disks, runs, releases)
    gone = {(host, held.run) for host, what in chosen.items() for held in what.runs}
    dropped = {held.release for what in chosen.values() for held in what.releases}
    everywhere = [(host, held) for host, each in disks.items() for held in each.runs]
    stay = [held for host, held in everywhere if (host, held.run) not in gone]
    living = {held.run for _, held in everywhere if held.live}
    assert not living & {name for _, name in gone}
    assert not {held.release for held in stay} & dropped
    assert len({held.run for held in stay}) >= min(runs, len({h.run for _, h in everywhere}))


# result, merged


@pytest.mark.parametrize(
    ("states", "word"),
    [
        ("READY SUCCEEDED FAILED", "going"),
        ("BACKOFF STOPPED", "going"),
        ("STARTING", "going"),
        ("SUCCEEDED FAILED LOST", "succeeded"),
        ("STOPPED SUCCEEDED", "stopped"),
        ("STOPPED SUCCEEDED FAILED LOST", "failed"),
        ("STOPPED SUCCEEDED LOST", "lost"),
        ("FAILED SUCCEEDED", "failed"),
        ("LOST", "lost"),
        ("", "stopped"),
    ],
)
def test_a_run_succeeds_as_its_chief_does(states, word):
    tasks = {f"worker:{index}": state for index, state in enumerate(states.split())}
    assert result(tasks, "worker:0") == word


@pytest.mark.parametrize(
    ("states", "word"),
    [
        ("SUCCEEDED FAILED LOST", "failed"),
        ("SUCCEEDED LOST", "lost"),
        ("SUCCEEDED STOPPED", "succeeded"),
        ("SUCCEEDED READY", "going"),
    ],
)
@pytest.mark.parametrize("chief", ["", "chief:0"])
def test_without_the_chiefs_state_what_failed_is_told_first(states, word, chief):
    tasks = {f"worker:{index}": state for index, state in enumerate(states.split())}
    assert result(tasks, chief) == word


@pytest.mark.parametrize("hosts", ["old new", "new old"])
def test_what_a_resumed_run_left_on_a_lost_host_counts_no_more(tmp_path, hosts):
    parts = {
        "old": run(1, tasks={"worker:0": "LOST"}, age_s=9.0),
        "new": run(1, tasks={"worker:0": "READY"}, age_s=1.0),
    }
    (line,) = merged({host: disk(parts[host]) for host in hosts.split()}, tmp_path)
    assert (line.result, line.tasks) == ("going", {"worker:0": "READY"})


def test_the_parts_of_a_run_are_one_line(tmp_path):
    disks = {
        "a": disk(run(1, tasks={"ps:0": "STOPPED"}, age_s=9.0)),
        "b": disk(run(1, tasks={"worker:0": "SUCCEEDED"}, age_s=8.0)),
    }
    (line,) = merged(disks, tmp_path)
    assert (line.id, line.result, line.age_s) == ("20260101-000001-abcd", "succeeded", 8.0)
    assert (line.hosts, line.bytes, set(line.tasks)) == (("a", "b"), 20, {"ps:0", "worker:0"})


def test_the_newest_run_is_the_first_line(tmp_path):
    lines = merged({"a": disk(run(1), run(3)), "b": disk(run(2))}, tmp_path)
    assert [int(line.id.split("-")[1]) for line in lines] == [3, 2, 1]


def test_a_line_says_what_of_the_run_is_at_home(tmp_path):
    for number, file in ((1, "run.json"), (2, "checkpoints/checkpoint")):
        at_home = tmp_path / run(number).run / file
        at_home.parent.mkdir(parents=True)
        at_home.write_text("")
    lines = merged({"a": disk(run(1), run(2), run(3))}, tmp_path)
    told = [(line.recorded, line.collected) for line in lines]
    assert told == [(False, False), (False, True), (True, False)]


@pytest.mark.parametrize("name", ["backup", "../../etc", "20260101-000001-abcd/..", ""])
def test_what_is_not_named_as_runs_are_is_no_line(tmp_path, name):
    assert merged({"a": disk(run(name))}, tmp_path) == ()


def test_a_disk_adds_up_what_the_project_uses():
    held = disk(run(1), run(2), releases=[("f00d", 1.0)], left=3)
    assert (held.releases_bytes, held.used_bytes) == (5, 28)
