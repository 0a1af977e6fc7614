"""Comparing runs that are at home: which are meant, what they tell, when they got there."""

from __future__ import annotations

import errno
import json
import math
import re
from pathlib import Path

import pytest

from tfdeploy import curves, documents, run
from tfdeploy.console import Console
from tfdeploy.curves import Point
from tfdeploy.errors import RunError
from tfdeploy.steps import compare as steps
from unit.test_cli import tfdeploy  # noqa: F401
from unit.test_curves import scalars
from unit.test_progress import record, write
from unit.test_run import made

ONE, TWO = "20260101-000000-aaaa", "20260102-000000-bbbb"
LOG = r"step (?P<step>\d+) loss (?P<loss>\S+)"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def trained(folder, run_id, losses, *, project="p", tag="loss", at=1000.0, every=10):
    """A run at home that told these values, each so many steps and one second after the other."""
    known = made(folder, run_id=run_id)
    inventory = known.inventory.model_copy(update={"project": project})
    known = run.Run(run_id, known.release, known.agent, inventory, known.plan)
    run.save(known)
    told = [record(scalars(n * every, at + n, **{tag: v})) for n, v in enumerate(losses)]
    write(known.folder / "events", *told)
    return known.folder


def logged(folder, name, *lines):
    (folder / "logs").mkdir(exist_ok=True)
    (folder / "logs" / name).write_text("".join(f"{line}\n" for line in lines))


def compare(folder, *named, **options):
    return steps.compare(folder / "hosts.toml", named, **options)


def refused(folder, *named, **options):
    with pytest.raises(RunError) as caught:
        compare(folder, *named, **options)
    assert caught.value.exit_code == 2
    return str(caught.value).replace(str(folder), "~")


# Which runs


def test_a_run_is_named_by_its_id_or_its_folder_and_may_have_a_label(folder):
    trained(folder, ONE, [1.0])
    elsewhere = trained(folder, TWO, [2.0]).rename(folder / "a=b")
    seen = compare(folder, ONE, "a=b", f"again={ONE}", f"more={elsewhere}/")
    assert [told.label for told in seen.runs] == [ONE, "a=b", "again", "more"]
    assert [told.run for told in seen.runs] == [ONE, "a=b", ONE, "a=b"]
    assert [told.curve[0].value for told in seen.runs] == [1.0, 2.0, 1.0, 2.0]


def test_runs_are_looked_for_beside_the_hosts_file(folder, monkeypatch):
    trained(folder, ONE, [1.0])
    monkeypatch.chdir("/")
    assert compare(folder, ONE).runs[0].folder == folder / "runs" / ONE


def test_projects_that_tell_runs_apart_are_their_names(folder):
    trained(folder, ONE, [1.0], project="hogwild")
    trained(folder, TWO, [1.0], project="downpour")
    assert [told.label for told in compare(folder, ONE, TWO).runs] == ["hogwild", "downpour"]
    assert [told.label for told in compare(folder, ONE, f"x={TWO}").runs] == ["hogwild", "x"]
    assert [told.label for told in compare(folder, ONE).runs] == [ONE]
    trained(folder, "third", [1.0], project="downpour")
    seen = compare(folder, ONE, TWO, "third")
    assert [told.label for told in seen.runs] == [ONE, TWO, "third"]


def test_two_runs_have_no_one_name(folder):
    trained(folder, ONE, [1.0])
    found = f'2 runs are called "{ONE}"\n  name them apart: LABEL=RUN'
    assert refused(folder, ONE, ONE) == found


def test_a_run_that_is_not_there_is_named_with_those_that_are(folder):
    assert refused(folder, "x") == (
        'there is no run "x" in ~/runs, and no such folder\n  say --hosts FILE'
    )
    trained(folder, ONE, [1.0])
    found = f'there is no run "nope" in ~/runs, and no such folder\n  the newest here are {ONE}'
    assert refused(folder, ONE, "x=nope") == found


def test_a_run_that_was_not_collected_says_how(folder):
    run.save(made(folder, run_id=ONE))
    found = f"run {ONE} isn't at home yet\n  tfdeploy collect --run {ONE}"
    assert refused(folder, ONE) == found
    run.save(made(folder, "other.toml", run_id=TWO))
    assert refused(folder, TWO).endswith(f"  tfdeploy collect --hosts other.toml --run {TWO}")


def test_any_other_folder_is_no_run(folder):
    (folder / "data").mkdir()
    assert refused(folder, "x" * 300).startswith(f'there is no run "{"x" * 300}" in ~/runs')
    assert refused(folder, "data") == "data is no run's folder: it has neither events/ nor logs/"


def test_one_that_may_not_be_entered_is_named(folder, monkeypatch):
    events, is_dir = trained(folder, ONE, [1.0]) / "events", Path.is_dir

    def locked(path):
        if path == events:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return is_dir(path)

    monkeypatch.setattr(Path, "is_dir", locked)
    assert refused(folder, ONE) == f"~/runs/{ONE}/events can't be read: Permission denied"


def test_tasks_are_counted_where_there_is_a_record(folder):
    kept = trained(folder, ONE, [1.0])
    assert compare(folder, ONE).runs[0].tasks == {"ps": 1, "worker": 2}
    (kept / "run.json").write_text("broken")
    assert compare(folder, ONE).runs[0].tasks == {}
    (kept / "run.json").unlink()
    assert compare(folder, ONE).runs[0].tasks == {}


# Which scalar


def test_loss_is_compared_where_all_tell_it_else_the_only_one_that_they_share(folder):
    trained(folder, ONE, [1.0])
    trained(folder, TWO, [1.0], tag="error")
    assert compare(folder, ONE).tag == "loss"
    assert compare(folder, TWO).tag == "error"
    both = f"no scalar is told by all of the runs\n  {ONE} tells loss\n  {TWO} tells error"
    assert refused(folder, ONE, TWO) == both
    assert refused(folder, ONE, TWO, tag="loss") == f'{TWO} tells no "loss"\n  it tells error'


def test_the_speed_is_not_compared_unless_asked_for(folder):
    kept = trained(folder, ONE, [1.0], tag="error")
    speed = record(scalars(1, 1.0, **{"global_step/sec": 50.0}))
    write(kept / "events", speed, name="events.out.tfevents.2")
    assert compare(folder, ONE).tag == "error"
    assert compare(folder, ONE, tag="global_step/sec").tag == "global_step/sec"


def test_of_several_one_is_asked_for(folder):
    kept = trained(folder, ONE, [1.0], tag="a")
    write(kept / "events", record(scalars(1, 1.0, b=1.0)), name="events.out.tfevents.2")
    found = 'the runs don\'t all tell a "loss", but a, b\n  say --tag NAME'
    assert refused(folder, ONE) == found


def test_of_very_many_some_are_named(folder):
    kept = trained(folder, ONE, [1.0], tag="a")
    many = scalars(1, 1.0, **{f"x{n:02}": 1.0 for n in range(40)})
    write(kept / "events", record(many), name="events.out.tfevents.2")
    assert "a, x00, x01" in refused(folder, ONE)
    assert "x10 and 29 more" in refused(folder, ONE)


def test_events_without_scalars_name_the_log(folder):
    kept = trained(folder, ONE, [])
    assert refused(folder, ONE).startswith(
        f"run {ONE}: its event files hold no scalar\n  --pattern"
    )
    logged(kept, "worker-0.log", "step 1 loss 2.5", "step 2 loss 1.5")
    told = compare(folder, ONE, pattern=curves.log_pattern(LOG)).runs[0]
    assert [(point.step, point.value) for point in told.curve] == [(1, 2.5), (2, 1.5)]


# Logs


def test_the_chiefs_log_is_read_and_what_it_held_before(folder):
    kept = trained(folder, ONE, [])
    logged(kept, "worker-0.log.1", "step 1 loss 3")
    logged(kept, "worker-0.log", "step 2 loss 2", "done")
    logged(kept, "worker-1.log", "step 9 loss 9")
    pattern = curves.log_pattern(LOG)
    told = compare(folder, ONE, pattern=pattern).runs[0]
    assert [point.step for point in told.curve] == [1, 2]
    assert math.isnan(told.began) and math.isnan(told.rate)
    (kept / "run.json").unlink()
    assert len(compare(folder, ONE, pattern=pattern).runs[0].curve) == 2
    logged(kept, "chief-0.log", "step 5 loss 1")
    assert [p.step for p in compare(folder, ONE, pattern=pattern).runs[0].curve] == [5]


def test_a_pattern_that_finds_nothing_is_told_the_last_line(folder):
    logged(trained(folder, ONE, []), "worker-0.log", "step 1: 3.5")
    assert refused(folder, ONE, pattern=re.compile(LOG)) == (
        f'~/runs/{ONE}/logs/worker-0.log has no line with "{LOG}"\n  its last line is: step 1: 3.5'
    )
    assert "names no loss" in refused(folder, ONE, pattern=re.compile(r"(?P<step>\d)"))


# What they come to


def test_a_smoothed_value_is_the_mean_of_the_last_steps():
    curve = tuple(Point(step, 0.0, float(step)) for step in (0, 10, 20, 30, 45))
    assert steps.smoothed(curve, 20) == (0.0, 5.0, 15.0, 25.0, 37.5)
    assert steps.smoothed(curve, 1) == (0.0, 10.0, 20.0, 30.0, 45.0)
    assert steps.smoothed(curve, 1000) == (0.0, 5.0, 10.0, 15.0, 21.0)


def test_what_is_no_number_spoils_the_means_around_it_alone():
    values = (1.0, math.nan, 3.0, 1e300, math.inf, -math.inf, 5.0, 6.0)
    found = steps.smoothed(tuple(Point(n, 0.0, v) for n, v in enumerate(values)), 2)
    assert [math.isfinite(value) for value in found] == [1, 0, 0, 1, 0, 0, 0, 1]
    assert found[-1] == 5.5


def test_a_huge_value_is_not_felt_behind_it():
    values = [1e38, *[0.1] * 5000]
    found = steps.smoothed(tuple(Point(n, 0.0, v) for n, v in enumerate(values)), 1000)
    assert found[-1] == 0.1


def test_all_runs_are_smoothed_alike_by_the_longest(folder):
    trained(folder, ONE, [1.0] * 11)
    trained(folder, TWO, [1.0] * 101)
    assert compare(folder, ONE).smooth == 5
    assert compare(folder, ONE, TWO).smooth == 50
    assert compare(folder, ONE, TWO, smooth=7).smooth == 7
    assert compare(folder, ONE, TWO, smooth=0).smooth == 1


def test_seconds_begin_with_the_first_scalar_of_any_tag(folder):
    kept = trained(folder, ONE, [3.0, 2.0, 1.0], at=1000.0)
    early = record(scalars(0, 990.0, other=1.0))
    write(kept / "events", early, name="events.out.tfevents.2")
    told = compare(folder, ONE).runs[0]
    assert told.seconds == (10.0, 11.0, 12.0)
    assert told.rate == 10.0


def test_seconds_begin_by_the_clock_of_whoever_tells_the_scalar(folder):
    kept = trained(folder, ONE, [3.0, 2.0], at=1000.0)
    of_another = [record(scalars(n, 5.0 + n, **{"loss": 9.0, "error": 0.5})) for n in (1, 2, 3)]
    write(kept / "events" / "evaluator-0", *of_another)
    assert compare(folder, ONE).runs[0].seconds == (0.0, 1.0)
    assert compare(folder, ONE, tag="evaluator-0/error").runs[0].seconds == (0.0, 1.0, 2.0)


def test_when_a_run_first_reached_the_target(folder):
    trained(folder, ONE, [4.0, 2.0, 1.0, 3.0, 0.5])
    seen = compare(folder, ONE, target=1.0, smooth=0)
    assert seen.reached(seen.runs[0]) == (20, 2.0)
    assert seen.best(seen.runs[0]) == 0.5
    seen = compare(folder, ONE, target=1.5, smooth=20)
    assert seen.reached(seen.runs[0]) == (20, 2.0)
    seen = compare(folder, ONE, target=1.4, smooth=20)
    assert seen.reached(seen.runs[0]) is None
    assert compare(folder, ONE).reached(seen.runs[0]) is None


def test_an_accuracy_rises_to_its_target(folder):
    trained(folder, ONE, [0.1, 0.8, 0.95, 0.9], tag="accuracy")
    seen = compare(folder, ONE, target=0.9, smooth=0)
    assert seen.rises
    assert seen.reached(seen.runs[0]) == (20, 2.0)
    assert seen.best(seen.runs[0]) == pytest.approx(0.95)


def test_a_loss_that_rises_is_no_better_for_it(folder):
    trained(folder, ONE, [1.0, 5.0])
    assert not compare(folder, ONE).rises


def test_one_point_has_no_speed(folder):
    trained(folder, ONE, [1.0])
    assert math.isnan(compare(folder, ONE).runs[0].rate)


# How it is told


def test_a_run_without_times_is_in_the_first_panel_alone(folder):
    trained(folder, ONE, [2.0, 1.0])
    logged(trained(folder, TWO, []), "worker-0.log", "step 1 loss 2.5")
    timed, untimed = compare(folder, ONE), compare(folder, TWO, pattern=re.compile(LOG))
    assert [panel.xlabel for panel in steps.panels(untimed)] == ["step"]
    both = steps.Comparison("loss", 1, False, None, (*timed.runs, *untimed.runs))
    against_step, against_time = steps.panels(both, "y")
    assert [line.label for line in against_step.lines] == [ONE, TWO]
    assert [line.label for line in against_time.lines] == [ONE]
    assert against_time.lines[0].xs == (0.0, 1.0)
    assert against_step.log == against_time.log == "y"


def test_the_document_holds_no_number_that_json_lacks(folder):
    trained(folder, ONE, [2.0, math.nan, math.inf], project="a")
    seen = compare(folder, ONE, smooth=0, target=3.0)
    told = json.loads(json.dumps(documents.compared(seen, folder / "a.svg"), allow_nan=False))
    assert (told["tag"], told["smooth_steps"], told["best_is"]) == ("loss", 1, "lowest")
    [one] = told["runs"]
    assert one["curve"] == {
        "step": [0, 10, 20],
        "seconds": [0.0, 1.0, 2.0],
        "value": [2.0, None, None],
        "smoothed": [2.0, None, None],
    }
    assert (one["first"], one["last"], one["best"]) == (2.0, None, 2.0)
    assert one["reached"] == {"step": 0, "seconds": 0.0}
    assert (one["steps"], one["seconds"], one["steps_per_s"]) == (20, 2.0, 10.0)
    assert one["tasks"] == {"ps": 1, "worker": 2}


# The command


def lines_of(out):
    return [re.split(r"  +", line.strip()) for line in out.splitlines()]


def test_the_table_has_a_row_a_run(folder, tfdeploy):  # noqa: F811
    trained(folder, ONE, [4.0, 2.0, 1.0], project="slow", every=100)
    trained(folder, TWO, [4.0, 1.0, 0.5], project="fast", every=100)
    code, out, err = tfdeploy("compare", ONE, TWO, "--target", "0.75")
    assert (code, err) == (0, "")
    assert lines_of(out) == [
        ["RUN", "TASKS", "STEPS", "SECONDS", "STEPS/S", "FIRST", "LAST", "LOWEST", "REACHED 0.75"],
        ["slow", "1 ps, 2 workers", "200", "2.0", "100.0", "4", "1", "1", "-"],
        ["fast", "1 ps, 2 workers", "200", "2.0", "100.0", "4", "0.5", "0.5", "step 200, 2.0 s"],
        [""],
        ["loss: a mean over 10 steps (--smooth)"],
        ["picture: runs/compare.svg"],
    ]
    assert {"slow", "fast", "loss"} <= set(re.findall("<!-- (.*?) -->", picture(folder)))


def picture(folder):
    return (folder / "runs" / "compare.svg").read_text()


def test_a_log_without_times_is_told_by_steps(folder, tfdeploy):  # noqa: F811
    logged(trained(folder, ONE, []), "worker-0.log", "step 1 loss 2.5", "step 9 loss nan")
    words = ["compare", ONE, "--pattern", LOG, "--target", "2.5", "--picture", "a.png"]
    code, out, _ = tfdeploy(*words)
    assert code == 0
    row = [ONE, "1 ps, 2 workers", "9", "-", "-", "2.5", "nan", "2.5", "step 1"]
    assert lines_of(out)[1:5] == [row, [""], ["loss: not smoothed (--smooth)"], ["picture: a.png"]]
    assert (folder / "a.png").read_bytes().startswith(b"\x89PNG")


def test_json_is_one_document(folder, tfdeploy):  # noqa: F811
    trained(folder, ONE, [2.0, 1.0])
    code, out, err = tfdeploy("compare", f"x={ONE}", "--json", "--picture", "x.svg")
    assert (code, err) == (0, "")
    told = json.loads(out)
    assert (told["picture"], told["runs"][0]["label"]) == ("x.svg", "x")


def test_a_picture_that_can_not_be_is_refused_before_anything_is_read(folder, tfdeploy):  # noqa: F811
    code, out, err = tfdeploy("compare", "nope", "--picture", "x.gif")
    assert (code, out) == (2, "")
    assert err == "error: found 'x.gif', which ends in neither .svg nor .png\n  say x.svg\n"


@pytest.mark.filterwarnings("ignore:overflow")
def test_what_can_not_be_drawn_is_told_all_the_same(folder, tfdeploy):  # noqa: F811
    trained(folder, ONE, [])
    logged(folder / "runs" / ONE, "worker-0.log", "step 1 loss 1e308", "step 2 loss -1e308")
    code, out, err = tfdeploy("compare", ONE, "--pattern", LOG)
    assert (code, "-1e+308" in out) == (2, True)
    assert "compare.svg can't be drawn" in err


def test_a_label_with_control_characters_reaches_no_terminal(folder, capsys):
    trained(folder, ONE, [1.0])
    seen = compare(folder, f"\x1b[31m[bold]={ONE}")
    Console().compared(seen, folder / "a.svg")
    assert r"\x1b[31m[bold]" in capsys.readouterr().out
