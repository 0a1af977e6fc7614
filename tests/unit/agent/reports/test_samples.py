"""Samples of a host: what they have, and that neither their size nor their cost grows."""

from __future__ import annotations

import os

import pytest

from tfdeploy.agent import paths
from tfdeploy.agent.machine.devices import nvidia
from tfdeploy.agent.reports import samples, usage
from tfdeploy.agent.reports.follow import follow
from tfdeploy.agent.reports.samples import CPU_SHARE, EVERY_S, MAX_CHARS, MAX_LINES, MAX_PAUSE_S
from tfdeploy.shared.protocol.reports import GpuUse

MEMORY = "MemTotal:       16000 kB\nMemFree:  1 kB\nMemAvailable:    4000 kB\nHugePages_Total: 0\n"
USE = """\
0, 97, 71680, 81559
1, [N/A], 5, 10
NVIDIA-SMI has failed because it couldn't communicate with the driver
2, 3, [N/A], 10
"""


@pytest.fixture(autouse=True)
def no_gpus(monkeypatch):
    """Unit tests start no process."""
    monkeypatch.setattr(nvidia.GpuSampler, "read", lambda self: [])


def watch(lines=10, cursors=None, chief=""):
    tasks = ["worker:0", "ps:0"]
    return list(follow("p", "r", tasks, False, lines, True, cursors, chief, samples=True))


def test_a_run_that_has_ended_gives_one_sample(log):
    log.write_text("one\ntwo\nwithout end")
    [sample] = watch(lines=2)
    assert [use.report.state for use in sample.tasks] == ["SUCCEEDED"]
    assert [(found.task, found.lines) for found in sample.logs] == [
        ("worker:0", ["two", "without end"])
    ]


def test_a_log_continues_at_its_cursor(log):
    log.write_text("one\n")
    [first] = watch()
    log.write_text("one\ntwo\n")
    [second] = watch(cursors={"worker:0": first.logs[0].cursor})
    assert second.logs[0].lines == ["two"]


def test_a_log_without_new_lines_is_left_out(log):
    log.write_text("one\n")
    [first] = watch()
    [second] = watch(cursors={"worker:0": first.logs[0].cursor})
    assert second.logs == []


def test_only_the_end_of_a_fast_log_is_sent(log):
    log.write_text("")
    newest = samples._NewestLines("worker:0", str(log), 10, None)
    log.write_text("".join(f"line {number} {'x' * 1000}\n" for number in range(5000)))
    lines = newest.read(False).lines
    assert len(lines) == MAX_LINES
    assert lines[-1].startswith("line 4999 ")
    assert max(map(len, lines)) == MAX_CHARS


def test_the_end_of_a_progress_bar_and_the_start_of_another_line_are_kept():
    assert samples.shorten("a" + "x" * 999).startswith("ax")
    assert samples.shorten("x" * 999 + "\r157/157").endswith("\r157/157")


def test_the_chiefs_newest_checkpoint_has_its_age(log):
    saves = paths.checkpoints(paths.task("p", "r", "worker:0"), "checkpoints")
    os.makedirs(saves)
    for name in ("checkpoint", "model.ckpt-7.index"):
        with open(os.path.join(saves, name), "w") as file:
            file.write('model_checkpoint_path: "model.ckpt-7"\n')
    os.utime(os.path.join(saves, "model.ckpt-7.index"), (1.0, 1.0))
    [sample] = watch(chief="worker:0")
    assert sample.checkpoint == "model.ckpt-7"
    assert sample.checkpoint_age_s > 1e6
    assert watch()[0].checkpoint is None


def test_a_checkpoint_without_its_files_is_none(tmp_path):
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-7"\n')
    assert samples.newest_checkpoint(str(tmp_path)) == (None, None)


@pytest.mark.parametrize(
    ("cpu_s", "pause_s"), [(0.0, EVERY_S), (0.02, 0.02 / CPU_SHARE), (5.0, MAX_PAUSE_S)]
)
def test_the_pause_grows_with_what_a_sample_costs(cpu_s, pause_s):
    assert samples.next_pause_s(cpu_s) == pause_s


def test_memory_is_what_programs_can_still_get(tmp_path):
    (tmp_path / "meminfo").write_text(MEMORY)
    assert usage.memory_bytes(str(tmp_path / "meminfo")) == (16000 * 1024, 4000 * 1024)


def test_the_use_of_gpus_is_parsed_line_by_line():
    mebi = 1 << 20
    assert nvidia.parse_use(USE) == [
        GpuUse(0, 97.0, 71680 * mebi, 81559 * mebi), GpuUse(1, None, 5 * mebi, 10 * mebi),
    ]  # fmt: skip
