"""Which runs and releases prune chooses, and how the parts of a run are summarized. Pure."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdeploy.commands import prune
from tfdeploy.commands.prune import choose_removals
from tfdeploy.commands.runs import HostDisk, run_result, summarize_runs
from tfdeploy.environments.wheelhouse import PLACE
from tfdeploy.release.snapshot import slug
from tfdeploy.shared.protocol.runs import HeldEnvironment, HeldRelease, HeldRun
from tfdeploy.shared.records import TaskState

WHEELS = f"{slug(PLACE)}-"


def run(
    number, release="f00d", *, live=False, tasks=(), age_s=1.0, size=10, data=(), environments=(),
    launch="", reason="",
):  # fmt: skip
    run_id = number if isinstance(number, str) else f"20260101-{number:06}-abcd"
    return HeldRun(
        run_id,
        release,
        "worker:0",
        live,
        {task: TaskState(state, 0.0, reason=reason) for task, state in dict(tasks).items()},
        age_s,
        size,
        [*data],
        [*environments],
        launch,
    )


def disk(*runs, releases=(), left=0):
    held = tuple(HeldRelease(name, age_s, 5) for name, age_s in releases)
    return HostDisk(runs, held, left, 1000, 2000)


def removed(disks, runs=0, releases=0):
    """Return what is deleted from which host: numbers of runs and names of releases."""
    chosen = choose_removals(disks, runs, releases)
    return {
        host: [int(run.run.split("-")[1]) for run in what.runs] + [r.release for r in what.releases]
        for host, what in chosen.items()
    }


def environments_removed(runs, environments, keep=0):
    held = tuple(HeldEnvironment(name, age_s, 5) for name, age_s in environments)
    chosen = choose_removals({"a": replace(disk(*runs), environments=held)}, keep, 0)
    return [each.environment for what in chosen.values() for each in what.environments]


def wheels_removed(held, environments, *runs):
    """Return the releases that are removed, with wheels among them; `environments` are (name, age,
    wheels)."""
    built = tuple(HeldEnvironment(name, age_s, 5, wheels) for name, age_s, wheels in environments)
    disks = {"a": replace(disk(*runs, releases=held), environments=built)}
    return removed(disks, runs=9, releases=5)


# choose_removals


def test_wheels_stay_with_the_environments_that_were_built_from_them():
    old, new, failed = (WHEELS + name for name in ("1" * 16, "2" * 16, "3" * 16))
    held = [(old, 9e4), (new, 8e4), (failed, 7e4)]
    environments = [("of-no-run", 9e4, old), ("newest", 8e4, new)]
    assert wheels_removed(held, environments) == {"a": [old, failed]}
    used = run(1, environments=["of-no-run"])
    assert wheels_removed(held, environments, used) == {"a": [failed]}


def test_wheels_of_which_an_environment_may_be_being_built_stay():
    assert wheels_removed([(WHEELS + "1" * 16, 60.0)], []) == {}


def test_environments_that_no_run_uses_are_removed_except_the_newest():
    environments = [("old", 9.0), ("new", 1.0), ("mid", 5.0)]
    assert environments_removed([], environments) == ["mid", "old"]


def test_an_environment_that_another_host_uses_from_a_shared_store_stays():
    held = [HeldEnvironment(name, age_s, 5) for name, age_s in (("of-a", 8e4), ("of-b", 9e4))]
    store = replace(disk(run(1, environments=["of-a"])), environments=(*held,), is_shared=True)
    other = disk(run(1, environments=["of-b"]))
    assert choose_removals({"a": store, "b": other}, 1, 0) == {}


def test_environments_that_hosts_have_just_built_in_a_shared_store_stay():
    held = tuple(HeldEnvironment(name, age_s, 5) for name, age_s in (("cpu", 9.0), ("gpu", 1.0)))
    store = replace(disk(), environments=held, is_shared=True)
    assert choose_removals({"a": store}, 0, 0) == {}


def test_environments_of_runs_that_stay_and_of_live_runs_stay():
    runs = [run(1, environments=["gone"]), run(2, environments=["kept"])]
    runs += [run(3, live=True, environments=["live"]), run(4)]
    names = [("gone", 4.0), ("kept", 5.0), ("live", 6.0), ("new", 1.0)]
    assert environments_removed(runs, names, keep=3) == ["gone"]


def test_the_newest_runs_of_all_hosts_together_stay():
    disks = {"a": disk(run(1), run(2)), "b": disk(run(3), run(1))}
    assert removed(disks, runs=2) == {"a": [1], "b": [1]}


def test_the_id_decides_which_run_is_newer_whatever_the_clocks_say():
    disks = {"a": disk(run(1, age_s=0.0)), "b": disk(run(2, age_s=9e9))}
    assert removed(disks, runs=1) == {"a": [1]}


def test_a_run_that_is_live_on_one_host_stays_on_all():
    disks = {"a": disk(run(1, live=True)), "b": disk(run(1), run(2))}
    assert removed(disks) == {"b": [2]}


def test_a_live_old_run_stays_in_addition_to_the_newest():
    disks = {"a": disk(run(1, live=True), run(2), run(3))}
    assert removed(disks, runs=1) == {"a": [2]}


def test_the_data_sets_of_runs_that_stay_stay_too():
    releases = [("code", 9.0), ("a-1", 9.0), ("b-1", 8.0), ("b-2", 7.0)]
    disks = {"a": disk(run(1, data=["b-2"]), run(2, data=["a-1", "b-1"]), releases=releases)}
    assert removed(disks, runs=1) == {"a": [1, "code", "b-2"]}


def test_the_newest_releases_of_the_source_and_of_each_data_set_stay():
    releases = [("code1", 9.0), ("code2", 8.0), ("a-1", 7.0), ("a-2", 6.0), ("a-b-1", 5.0)]
    assert removed({"h": disk(releases=releases)}, releases=1) == {"h": ["code1", "a-1"]}


def test_the_releases_of_runs_that_stay_stay_too():
    releases = [("old", 9.0), ("used", 8.0)]
    disks = {"a": disk(run(1, "old"), run(2, "used"), releases=releases)}
    assert removed(disks, runs=1) == {"a": [1, "old"]}


def test_a_release_that_a_run_uses_stays_on_hosts_without_that_run():
    disks = {"a": disk(run(1, "used")), "b": disk(releases=[("used", 1.0), ("old", 1.0)])}
    assert removed(disks, runs=1) == {"b": ["old"]}


def test_the_newest_releases_stay_even_if_no_run_uses_them():
    disks = {"a": disk(releases=[("old", 9.0), ("new", 1.0), ("middle", 5.0)])}
    assert removed(disks, releases=2) == {"a": ["old"]}


def test_the_age_of_a_release_counts_from_its_last_push_to_any_host():
    disks = {
        "a": disk(releases=[("again", 9.0), ("other", 5.0)]),
        "b": disk(releases=[("again", 1.0)]),
    }
    assert removed(disks, releases=1) == {"a": ["other"]}


def test_a_folder_without_a_run_id_stays_with_its_release():
    disks = {"a": disk(run("backup", "used"), releases=[("used", 1.0)])}
    assert removed(disks) == {}


def test_remains_of_interrupted_pushes_are_deleted_even_without_runs():
    chosen = choose_removals({"a": disk(run(1), left=7), "b": disk(run(1))}, 1, 1)
    assert {host: what.left_bytes for host, what in chosen.items()} == {"a": 7}


def test_collected_results_are_on_the_controllers_disk_before_hosts_delete_them(monkeypatch):
    happened = []
    monkeypatch.setattr(prune.os, "sync", lambda: happened.append("sync"))

    class AnyFleet:
        def outcomes(self, hosts, ask):
            happened.append([*hosts])
            return {}

    chosen = choose_removals({"a": disk(run(1))}, 0, 0)
    prune.prune(AnyFleet(), "p", chosen)
    prune.remove_run(AnyFleet(), "p", "run", ["a"], "sweep")
    assert happened == ["sync", ["a"], [], "sync", ["a"]]


def test_a_run_of_size_zero_is_deleted_too():
    assert removed({"a": disk(run(1, size=0))}) == {"a": [1]}


HELD = st.lists(
    st.builds(run, st.integers(0, 9), st.sampled_from("xyz"), live=st.booleans()), max_size=6
)
DISKS = st.dictionaries(
    st.sampled_from("abc"),
    st.builds(lambda runs: disk(*runs, releases=[(name, 1.0) for name in "xyz"]), HELD),
)


@given(DISKS, st.integers(0, 5), st.integers(0, 3))
def test_live_runs_and_releases_in_use_are_never_deleted(disks, runs, releases):
    chosen = choose_removals(disks, runs, releases)
    removed_runs = {(host, held.run) for host, what in chosen.items() for held in what.runs}
    removed_releases = {held.release for what in chosen.values() for held in what.releases}
    everywhere = [(host, held) for host, each in disks.items() for held in each.runs]
    stay = [held for host, held in everywhere if (host, held.run) not in removed_runs]
    live = {held.run for _, held in everywhere if held.live}
    assert not live & {name for _, name in removed_runs}
    assert not {held.release for held in stay} & removed_releases
    assert len({held.run for held in stay}) >= min(runs, len({h.run for _, h in everywhere}))


# run_result, summarize_runs


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ("READY SUCCEEDED FAILED", "running"),
        ("BACKOFF STOPPED", "running"),
        ("STARTING", "running"),
        ("SUCCEEDED FAILED LOST", "succeeded"),
        ("STOPPED SUCCEEDED FAILED LOST", "stopped"),
        ("FAILED SUCCEEDED", "failed"),
        ("LOST", "lost"),
        ("", "unknown"),
    ],
)
def test_a_run_is_running_or_ended_as_its_chief_did(states, expected):
    tasks = {f"worker:{index}": TaskState(s, 0.0) for index, s in enumerate(states.split())}
    assert run_result(tasks, "worker:0") == expected


@pytest.mark.parametrize("hosts", ["old new", "new old"])
def test_older_states_on_a_host_that_a_resumed_run_left_do_not_count(tmp_path, hosts):
    parts = {
        "old": run(1, tasks={"worker:0": "LOST"}, age_s=9.0),
        "new": run(1, tasks={"worker:0": "READY"}, age_s=1.0),
    }
    (summary,) = summarize_runs({host: disk(parts[host]) for host in hosts.split()}, tmp_path)
    assert (summary.result, summary.tasks) == ("running", {"worker:0": "READY"})


def test_tasks_of_an_older_launch_do_not_count(tmp_path):
    dropped = run(1, tasks={"worker:1": "STOPPED"}, age_s=9.0, launch="first")
    scaled = run(1, tasks={"worker:0": "SUCCEEDED"}, age_s=1.0, launch="second")
    (summary,) = summarize_runs({"a": disk(dropped), "b": disk(scaled)}, tmp_path)
    assert summary.tasks == {"worker:0": "SUCCEEDED"}
    assert summary.hosts == ("a", "b")


def test_a_run_whose_chiefs_host_is_gone_succeeded_if_its_other_tasks_learned_so(tmp_path):
    reason = "the run has ended: worker:0 succeeded; stopped by SIGTERM"
    left = run(1, tasks={"ps:0": "STOPPED", "worker:1": "STOPPED"}, reason=reason)
    (summary,) = summarize_runs({"a": disk(left)}, tmp_path)
    assert (summary.result, set(summary.tasks)) == ("succeeded", {"ps:0", "worker:1"})


def test_a_run_of_which_only_the_chief_is_known_and_it_is_lost_is_lost(tmp_path):
    alone = run(1, tasks={"worker:0": "LOST"})
    (summary,) = summarize_runs({"a": disk(alone)}, tmp_path)
    assert summary.result == "lost"


def test_the_parts_of_a_run_are_summarized_as_one(tmp_path):
    disks = {
        "a": disk(run(1, tasks={"ps:0": "STOPPED"}, age_s=9.0)),
        "b": disk(run(1, tasks={"worker:0": "SUCCEEDED"}, age_s=8.0)),
    }
    (summary,) = summarize_runs(disks, tmp_path)
    assert (summary.id, summary.result, summary.age_s) == ("20260101-000001-abcd", "succeeded", 8.0)
    assert (summary.hosts, summary.bytes, set(summary.tasks)) == (
        ("a", "b"),
        20,
        {"ps:0", "worker:0"},
    )


def test_the_newest_run_comes_first(tmp_path):
    summaries = summarize_runs({"a": disk(run(1), run(3)), "b": disk(run(2))}, tmp_path)
    assert [int(summary.id.split("-")[1]) for summary in summaries] == [3, 2, 1]


def test_a_summary_says_whether_record_and_checkpoints_are_on_the_controller(tmp_path):
    for number, file in ((1, "run.json"), (2, "checkpoints/checkpoint")):
        file_on_controller = tmp_path / run(number).run / file
        file_on_controller.parent.mkdir(parents=True)
        file_on_controller.write_text("")
    summaries = summarize_runs({"a": disk(run(1), run(2), run(3))}, tmp_path)
    flags = [(summary.recorded, summary.collected) for summary in summaries]
    assert flags == [(False, False), (False, True), (True, False)]


@pytest.mark.parametrize("name", ["backup", "../../etc", "20260101-000001-abcd/..", ""])
def test_a_folder_without_a_run_id_is_not_summarized(tmp_path, name):
    assert summarize_runs({"a": disk(run(name))}, tmp_path) == ()


def test_a_disk_sums_up_what_the_project_uses():
    held = disk(run(1), run(2), releases=[("f00d", 1.0)], left=3)
    assert (held.releases_bytes, held.used_bytes) == (5, 28)
