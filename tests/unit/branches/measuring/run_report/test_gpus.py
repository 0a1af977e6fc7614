"""The use of GPUs: what hosts report is checked, and drawn on the time axis of the run."""

from __future__ import annotations

import json

import pytest
from support.finished import ONE, START, TWO, facts_of, finished_run

from tfdeploy.branches.measuring.run_report import charts, over_time, page
from tfdeploy.branches.measuring.run_report.over_time import GpuSample, TrainedRun
from tfdeploy.branches.measuring.scalars import Point

GPU_TASKS = ("worker-0", "worker-1")


def line(at, *rows):
    return json.dumps({"at": START + at, "gpus": rows})


def write_use(run, task, *lines):
    (run.folder / "logs" / f"{task}.gpus.jsonl").write_text("".join(f"{each}\n" for each in lines))


def used(*percents, every=30.0):
    return tuple(GpuSample(n * every, busy) for n, busy in enumerate(percents))


def drawn(**gpus):
    return charts.draw([TrainedRun("a", 0.0, {}, gpus=gpus)], "x")[0]


# What hosts report


def test_the_gpus_of_a_task_are_one_sample():
    [sample] = over_time.parse(line(0, [0, 90.0, 1024, 81920], [3, 50, 3072, 81920]).encode())
    assert sample == GpuSample(START, 70.0)


def test_a_gpu_that_does_not_report_its_use_is_left_out():
    [sample] = over_time.parse(line(0, [0, None, 1024, 2048], [1, 50, 1024, 2048]).encode())
    assert sample.busy_percent == 50.0


@pytest.mark.parametrize(
    "text",
    [
        *("", "{}", "[]", "null", "\x00", '{"at": 1, "gpus": []}', '{"at": 1, "gpus": {"a": 1}}'),
        '{"at": NaN, "gpus": [[0, 1, 1, 1]]}',
        '{"at": "soon", "gpus": [[0, 1, 1, 1]]}',
        *(f'{{"at": 1, "gpus": [{row}]}}' for row in (
            "[0, 101, 1, 1]", "[0, -1, 1, 1]", "[0, NaN, 1, 1]", '[0, "x", 1, 1]',
            "[0, null, 1, 1]", "[0, 1, 1]", "7", "[[], 1, 1]",
        )),
        '{"at": 1, "gpus": [' + ", ".join(["[0, 1, 1, 1]"] * 65) + "]}",
        "[" * 100000,
    ],
)  # fmt: skip
def test_what_is_not_possible_is_skipped(text):
    assert list(over_time.parse(text.encode())) == []


def test_samples_are_sorted_and_those_of_another_time_are_skipped(tmp_path):
    row = [0, 1, 1, 1]
    file = tmp_path / "worker-0.gpus.jsonl"
    times = (60, 30, 1e6, -1e6)
    file.write_text("\n".join([*(line(at, row) for at in times), '{"at": 1, "gp']))
    found = over_time.read_gpus(file, START, START + 100)
    assert [sample.at - START for sample in found] == [30, 60]


def test_no_file_and_a_link_have_no_samples(tmp_path):
    (tmp_path / "secret").write_text(line(1, [0, 1, 1, 1]))
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    for name in ("absent", "link"):
        assert over_time.read_gpus(tmp_path / name, START, START + 100) == ()


# The chart


def test_each_task_has_a_line_and_a_place_in_the_legend():
    [use] = drawn(**{"worker:0": used(90, 95), "worker:1": used(10, 20)})
    assert use.title == "GPU use in %"
    assert use.legend == ("worker:0", "worker:1")
    assert use.description == (
        "GPU use in % over time. worker:0: from 90 to 95, lowest 90, highest 95; "
        "worker:1: from 10 to 20, lowest 10, highest 20"
    )
    assert "var(--line-1)" in use.svg


def test_many_tasks_are_one_line_of_their_mean():
    runs = [TrainedRun("a", 0.0, {}, gpus={f"worker:{n}": used(n, 50, 50) for n in range(100)})]
    panel = over_time.gpu_panel(runs)
    [folded] = panel.lines
    assert folded.label == "mean of 100 tasks"
    assert [folded.ys[0], folded.ys[-1]] == [49.5, 50]


def test_several_runs_have_a_line_each_in_the_colours_of_the_runs():
    two = {"worker:0": used(80), "worker:1": used(90)}
    runs = [TrainedRun("a", 0.0, {}), TrainedRun("b", 0.0, {}, gpus=two)]
    panel = over_time.gpu_panel(runs)
    assert [(each.label, each.ys) for each in panel.lines] == [("b", [85.0])]
    assert panel.labels == ["a", "b"]
    assert not panel.legend  # the page has one for all charts


def test_a_long_run_keeps_its_times_and_means():
    samples = used(*([0, 100] * 5000))
    panel = over_time.gpu_panel([TrainedRun("a", 0.0, {}, gpus={"worker:0": samples})])
    [shown] = panel.lines
    assert len(shown.xs) == over_time.MAX_BINS
    assert shown.xs[0] < samples[100].at and shown.xs[-1] > samples[-100].at
    assert all(45 < y < 55 for y in shown.ys)


def test_all_charts_have_one_time_axis():
    """The loss ends after 20 minutes, the samples of GPUs after 50."""
    loss = tuple(Point(n, 60.0 * n, 1.0) for n in range(21))
    run = TrainedRun("a", 0.0, {"loss": loss}, gpus={"worker:0": used(*[50] * 101)})
    found, _ = charts.draw([run], "x")
    assert [chart.title for chart in found] == [*("loss", "steps/s", "GPU use in %")]
    for chart in found:
        assert "minutes since the run's start" in chart.svg.replace("&#x27;", "'")
        assert ">50<" in chart.svg.replace(" ", "")
    assert ">100<" in found[2].svg.replace(" ", "")


# The page


def test_the_page_shows_the_use_and_names_tasks_without(tmp_path):
    run = finished_run(tmp_path)
    [note] = [text for text in facts_of(run).missing if "GPU" in text]
    assert note == "No use of GPUs: nvidia-smi gave no answer, or it was not collected."
    write_use(run, GPU_TASKS[0], line(5, [0, 97, 1024, 2048]), line(35, [0, 99, 1024, 2048]))
    facts = facts_of(run)
    assert "No use of GPUs of worker:1: nvidia-smi gave no answer" in " ".join(facts.missing)
    text = page.render([facts])
    assert "GPU use in %" in text
    assert "worker:0: from 97 to 99" in text
    write_use(run, GPU_TASKS[1], line(5, [1, 97, 1024, 2048]))
    assert not any("GPU" in text for text in facts_of(run).missing)


def test_a_run_without_scalars_has_its_gpus(tmp_path):
    run = finished_run(tmp_path, losses=())
    write_use(run, "worker-0", line(30, [0, 97, 1024, 2048]), line(60, [0, 99, 1024, 2048]))
    found = page.view(facts_of(run)).charts
    assert [chart.title for chart in found] == ["GPU use in %"]
    assert "seconds since the run's start" in found[0].svg.replace("&#x27;", "'")


def test_a_run_without_gpus_has_no_word_of_them(tmp_path):
    facts = facts_of(finished_run(tmp_path, hosts="[hosts.a]\nworkers = 2"))
    assert not any("GPU" in text for text in facts.missing)
    assert "GPU use" not in page.render([facts])


def test_runs_side_by_side_share_the_chart(tmp_path):
    runs = [finished_run(tmp_path, run_id, name=run_id[-4:]) for run_id in (ONE, TWO)]
    for run in runs:
        write_use(run, "worker-0", line(5, [0, 97, 1024, 2048]), line(35, [0, 99, 1024, 2048]))
    text = page.render([facts_of(run) for run in runs])
    assert text.count("<figcaption>GPU use in %") == 1
    assert "aaaa: from 97 to 99, lowest 97, highest 99; bbbb: from 97" in text
