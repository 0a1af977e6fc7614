"""What is printed about checkpoints and outputs that were fetched, or not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tfdeploy.commands.collect import CollectResult
from tfdeploy.commands.fetch import FetchResult
from tfdeploy.commands.running.run import FinishedRun
from tfdeploy.output.results_output import (
    print_collected,
    print_fetched,
    print_finished,
    print_new_results,
)
from tfdeploy.results.checkpoints import BadCheckpoint, Checkpoint
from tfdeploy.results.outputs import Output, Outputs, SavedElsewhere, SkippedOutput, UnlistedFiles

from .samples import RUN_ID, make_run

FOLDER = make_run().folder
UNVERIFIED = "not verified: the chief's host has no TensorFlow, or too little memory, to read it"


def collected(*checkpoints, bad=(), **changes):
    result = CollectResult(FOLDER, "/h/work/checkpoints", checkpoints, 1, 2, bad)
    return replace(result, **changes)


# Checkpoints


def test_collected_checkpoints_events_and_logs_are_printed(printed):
    newest, older = Checkpoint("model-7", 7, (), True), Checkpoint("model-3", 3, (), True)
    assert printed(lambda console: print_collected(console, collected(newest, older))) == (
        f"checkpoint {FOLDER}/checkpoints/model-7 (and 1 older)\n"
        f"1 event file and 2 logs in {FOLDER}\n"
    )


def test_unverified_and_broken_checkpoints_are_marked(printed):
    unverified = Checkpoint("model-7", 7, (), False)
    bad = BadCheckpoint("model-9", "DataLossError: \x1b[1m")
    result = collected(unverified, bad=[bad])
    lines = printed(lambda console: print_collected(console, result)).splitlines()
    assert lines[1:3] == [
        UNVERIFIED,
        r"checkpoint model-9 is broken on its host and was not fetched: DataLossError: \x1b[1m",
    ]


def test_a_checkpoint_that_is_collected_again_is_not_printed_again(printed):
    first, second = Checkpoint("model-1", 1, (), False), Checkpoint("model-2", 2, (), False)

    def show(console):
        print_new_results(console, collected(first))
        print_new_results(console, collected(second))
        print_collected(console, collected(second))

    assert printed(show).splitlines() == [
        f"checkpoint {FOLDER}/checkpoints/model-1",
        UNVERIFIED,
        f"checkpoint {FOLDER}/checkpoints/model-2",
        f"1 event file and 2 logs in {FOLDER}",
    ]


def test_older_checkpoints_that_come_with_a_known_one_are_counted(printed):
    newest, older = Checkpoint("model-7", 7, (), True), Checkpoint("model-3", 3, (), True)

    def show(console):
        print_new_results(console, collected(newest))
        print_collected(console, collected(newest, older))

    assert printed(show).splitlines()[1].endswith("checkpoints/model-7 (and 1 older)")


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"source": ""}, "no checkpoint: the chief was never started"),
        ({"chief_answered": False}, "no checkpoint was fetched, see the error"),
        ({}, "no checkpoint: the chief created no folder /h/work/checkpoints"),
        ({"found_names": ()}, "no checkpoint: the chief's /h/work/checkpoints is empty"),
        (
            {"found_names": ("ckpt-1.index", "\x1bx")},
            "no checkpoint: the chief's /h/work/checkpoints has no complete one; it has "
            r"ckpt-1.index, \x1bx",
        ),
    ],
)
def test_a_missing_checkpoint_is_printed_with_its_reason(printed, changes, line):
    result = collected(**changes)
    assert printed(lambda console: print_collected(console, result)).splitlines()[0] == line


# Outputs


def make_outputs(*paths):
    return tuple(Output("worker:0", "/r/outputs", path, 1000) for path in paths)


def with_outputs(**fields):
    return collected(outputs=Outputs(**fields), flags="--run R")


def test_outputs_are_printed_when_they_arrive_and_counted_at_the_end(printed):
    def show(console):
        print_new_results(console, with_outputs(fetched=make_outputs("a.npz")))
        print_new_results(console, with_outputs(fetched=make_outputs("a.npz")))
        last = with_outputs(fetched=make_outputs("b.csv"), unchanged=make_outputs("a.npz"))
        print_collected(console, last)

    assert printed(show).splitlines()[:4] == [
        "output /r/outputs/a.npz (1.0 kB)",
        "output /r/outputs/b.csv (1.0 kB)",
        "no TensorFlow checkpoint in the chief's /h/work/checkpoints; "
        "its other outputs were fetched",
        f"2 outputs (2.0 kB) in {FOLDER}/outputs",
    ]


def test_a_file_that_has_grown_since_it_was_printed_is_printed_again_at_the_end(printed):
    [early] = make_outputs("metrics.csv")
    whole = replace(early, size=5000)

    def run_to_its_end(console):
        print_new_results(console, with_outputs(fetched=(early,)))
        print_new_results(console, with_outputs(fetched=(replace(early, size=2000),)))
        print_collected(console, with_outputs(unchanged=(whole,)))

    lines = printed(run_to_its_end).splitlines()
    assert [line for line in lines if line.startswith("output ")] == [
        "output /r/outputs/metrics.csv (1.0 kB)",
        "output /r/outputs/metrics.csv (5.0 kB)",
    ]


def test_a_program_without_tensorflow_misses_no_checkpoint(printed):
    without = replace(with_outputs(), uses_tensorflow=False)
    assert printed(lambda console: print_collected(console, without)) == (
        f"1 event file and 2 logs in {FOLDER}\n"
    )
    never_started = replace(without, source="")
    assert "no checkpoint: the chief was never started" in printed(
        lambda console: print_collected(console, never_started)
    )


def test_many_outputs_share_a_line(printed):
    many = with_outputs(fetched=make_outputs(*(f"{number}.png" for number in range(30))))
    lines = printed(lambda console: print_new_results(console, many)).splitlines()
    assert (len(lines), lines[-1]) == (11, "and 20 more outputs (20.0 kB)")


def test_skipped_files_are_printed_with_the_command_that_fetches_them(printed):
    skipped = SkippedOutput("worker:0", "gpu-01", "big.bin", 2 * 10**9, "outputs_limit_mb = 1024")
    fifo = SkippedOutput("worker:0", "gpu-01", "pipe", 0, "it is a FIFO", can_fetch=False)
    unlisted = UnlistedFiles("worker:1", "gpu-02", 2, 3000)
    result = with_outputs(skipped=(skipped, fifo), unlisted=(unlisted,))
    lines = printed(lambda console: print_collected(console, result)).splitlines()
    assert lines[1:4] == [
        "skipped on gpu-01: big.bin of worker:0 (2.0 GB): outputs_limit_mb = 1024; "
        "tfdeploy fetch worker:0 big.bin --run R",
        "skipped on gpu-01: pipe of worker:0 (0 B): it is a FIFO",
        "2 files (3.0 kB) of worker:1 skipped: no `outputs` pattern in hosts.toml matches them; "
        "tfdeploy fetch worker:1 . --run R",
    ]


TEMPORARY = SavedElsewhere("worker:0", "gpu-01", "/tmp/tmp ab", exists=True)
DELETED = replace(TEMPORARY, path="/tmp/gone", exists=False)


def test_what_was_saved_elsewhere_is_printed_with_the_command_that_fetches_it(printed):
    result = replace(with_outputs(elsewhere=(TEMPORARY, DELETED)), found_names=())
    lines = printed(lambda console: print_collected(console, result)).splitlines()
    assert lines[:3] == [
        "no checkpoint: the chief's /h/work/checkpoints is empty",
        "worker:0 on gpu-01 saved in /tmp/tmp ab, which is not fetched: tfdeploy fetch worker:0 "
        "'/tmp/tmp ab' --run R; a folder whose path does not change can be added to `outputs`",
        "worker:0 on gpu-01 saved in /tmp/gone, which was deleted: "
        "save in checkpoint_dir, or add the folder to `outputs`",
    ]


def test_a_deleted_save_is_not_printed_if_the_chief_saved_more(printed):
    result = with_outputs(fetched=make_outputs("a"), elsewhere=(DELETED,))
    assert "deleted" not in printed(lambda console: print_collected(console, result))


def test_a_handful_of_the_files_of_each_task_is_named_and_the_others_are_counted(printed):
    of_two = [replace(TEMPORARY, task=f"worker:{n % 2}", path=f"/tmp/{n}") for n in range(20)]
    result = with_outputs(elsewhere=tuple(of_two), elsewhere_more=3)
    lines = printed(lambda console: print_collected(console, result)).splitlines()
    named = [line.split(",")[0].split()[-1] for line in lines if " saved in " in line]
    assert named == [f"/tmp/{n}" for n in (0, 2, 4, 6, 8, 1, 3, 5, 7, 9)]
    assert (
        "and 13 more files outside of the tasks' directories: tfdeploy collect --json --run R"
    ) in lines


FORGED = "a\nfetched 1 file\x1b[31m\t\udcff"


def test_no_name_from_a_host_adds_a_line(printed):
    skipped = SkippedOutput("worker:0", "gpu-01", FORGED, 1000, FORGED)
    elsewhere = (replace(TEMPORARY, path=FORGED), replace(DELETED, path=FORGED))
    outputs = Outputs(
        fetched=make_outputs(FORGED), skipped=(skipped,), deleted=(FORGED,), elsewhere=elsewhere
    )
    result = collected(
        Checkpoint(FORGED, 7, (), True), bad=[BadCheckpoint(FORGED, FORGED)], outputs=outputs,
        source=FORGED, found_names=(FORGED,), flags="",
    )  # fmt: skip
    text = printed(lambda console: print_collected(console, result))
    text += printed(lambda console: print_collected(console, replace(result, checkpoints=())))
    text += printed(
        lambda console: print_fetched(
            console, FetchResult(FOLDER, make_outputs(FORGED), (skipped,))
        )
    )
    lines = text.split("\n")
    assert [line.split(" (")[0] for line in lines if line.startswith("fetched")] == [
        "fetched 1 file"
    ]
    assert all(line.isprintable() for line in lines)


# Finished runs


@pytest.mark.parametrize(
    ("changes", "result"),
    [
        ({}, "ended with exit 0 and wrote nothing: no checkpoint, no output, no event file"),
        (
            {"outputs": Outputs(elsewhere=(TEMPORARY,))},
            "ended with exit 0; everything that it saved is on its host only",
        ),
        (
            {"outputs": Outputs(unlisted=(UnlistedFiles("worker:1", "gpu-02", 2, 3000),))},
            "ended with exit 0; everything that it saved is on its host only",
        ),
        (
            {"outputs": Outputs(elsewhere=(DELETED,))},
            "ended with exit 0; what it saved was deleted",
        ),
        (
            {"outputs": Outputs(deleted=("worker:0 on gpu-01",))},
            "ended with exit 0; what it saved was deleted",
        ),
        ({"events": 1}, "succeeded"),
        ({"outputs": Outputs(unchanged=make_outputs("a"))}, "succeeded"),
    ],
)
def test_a_run_that_wrote_nothing_is_not_printed_as_succeeded(printed, changes, result):
    finished = FinishedRun(0, None, "succeeded", collected(**{"events": 0, **changes}), {})
    lines = printed(lambda console: print_finished(console, make_run(), finished)).splitlines()
    assert lines[-1] == f"run {RUN_ID} {result}"
