"""The stored transcripts, and how two recordings are compared."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
from support import invariants, transcript
from support.transcript import Step, Transcript

FOLDER = Path(__file__).parents[1] / "transcripts"
FILES = sorted(FOLDER.glob("*.console"))
PAGES = runpy.run_path(str(FOLDER.parents[1] / "docs/console_blocks.py"))
TEXT = """\
about: a run
project: digits

% touch a
$ tfdeploy run
! note: something
READY     ps:0       here  pid 4401

run 20261129-080716-8837 succeeded
^C after is READY

gpu-1$ kill -9 44
[exit 1]
"""


def shown(*lines: str) -> str:
    """Return the normal form of a command that printed these lines."""
    return transcript.normal(Transcript({}, (Step("", "x", False, output=lines),)))


def test_a_file_is_read_and_written_as_it_is(tmp_path):
    (tmp_path / "a").write_text(TEXT)
    read = transcript.read(tmp_path / "a")
    assert read.settings == {"about": "a run", "project": "digits"}
    hidden, run, kill = read.steps
    assert (hidden.is_hidden, hidden.text) == (True, "touch a")
    assert run.output == (
        "! note: something", "READY     ps:0       here  pid 4401", "",
        "run 20261129-080716-8837 succeeded",
    )  # fmt: skip
    assert (kill.machine, kill.after, kill.code) == ("gpu-1", "is READY", 1)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_stored_file_has_the_written_form(file):
    assert transcript.read(file).text() == file.read_text()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("run 20261129-080716-8837 succeeded", "run 20261130-100716-aa37 succeeded"),
        ("pushed release bb35c7989aa8c742 (75.8 kB)", "pushed release aa35c7989aa8c74f (1.8 MB)"),
        ("worker:0@here | step 0 loss 2.317", "worker:0@here | step 12 loss 0.1"),
        ("ps:0  here  21831  -  40s", "ps:0  here  3831  -   3m 10s"),
        ("READY     ps:0  here  pid 40", "READY     ps:0  here  pid 4000"),
        ("started by bob 8s ago", "started by bob 5m ago"),
        ("here  3.11.7  2.21.0", "here  3.12.0  2.21.1"),
        (f"key SHA256:{'a' * 43}", f"key SHA256:{'b/' * 21}+"),
    ],
)
def test_values_that_differ_from_run_to_run_are_equal(one, other):
    assert shown(one) == shown(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("exit 137", "exit 139"),
        ("10.0.0.12 port 22", "10.0.0.13 port 22"),
        ("port 2222", "port 2223"),
        ("no SSH answer within 3.5 s", "no SSH answer within 3500 s"),
        ("!   a hint", "!  a hint"),
        ("3 of 3", "3 of 6"),
        ("note: 1 worker", "note: 2 workers"),
        ("! error: no host", "error: no host"),
        ("READY     ps:0  here  pid 40", "READY     ps:1  here  pid 40"),
    ],
)
def test_what_a_user_reads_is_compared(one, other):
    assert shown(one) != shown(other)


def test_lines_of_several_tasks_may_come_in_any_order_and_those_of_one_may_not():
    one, two = "BACKOFF   ps:0  here  pid 1", "BACKOFF   worker:0  here  pid 2"
    ready = "READY     ps:0  here  pid 1"
    assert shown(one, two, ready) == shown(two, one, ready)
    assert shown(one, ready) != shown(ready, one)


def test_the_second_run_is_another_one():
    first, second = "run 20261129-080716-8837", "run 20261129-080717-8838"
    assert shown(first, second) == shown(second, first)
    assert shown(first, second) != shown(first, first)


@pytest.mark.parametrize(
    "text",
    [
        "prune would delete 1 results",
        "tfdeploy fetch ps:0 /h/.tfdeploy/d/runs/20261129-080716-8837/ps-0/versions --run 2",
        "SUCCEEDED ps:0  here  exit 0\nREADY     ps:0  here  pid 3",
    ],
)
def test_a_false_line_is_found(text):
    assert len(invariants.problems(text)) == 1


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_no_transcript_has_a_false_or_endless_line(file):
    for step in transcript.read(file).steps:
        lines = [line.removeprefix(transcript.ERRORS) for line in step.output]
        assert invariants.problems("\n".join(lines)) == []
        assert invariants.long_lines(lines) == []


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_prune_asks_only_about_what_its_table_says_is_missing(file):
    for step in transcript.read(file).steps:
        text = "\n".join(step.output)
        asked = re.search(r"would delete (\d+) result", text)
        cells = re.findall(r"(\d+) of (\d+)$", text, re.MULTILINE)
        missing = sum(int(all_of_it) - int(collected) for collected, all_of_it in cells)
        assert not asked or int(asked[1]) == missing


def test_pages_show_only_output_that_a_transcript_has_printed():
    assert [each for page in PAGES["pages"]() for each in PAGES["problems"](page)] == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            "It says:\n\n    error: gpu-01: no key\n      try: ssh gpu-01\n",
            ["error: gpu-01: no key"],
        ),
        ("```\nREADY     ps:0       here  pid 4\n```\n", ["READY     ps:0       here  pid 4"]),
        ("    tfdeploy run    # until it is READY\n", []),
        ("A message is one line: `error: gpu-01: no key`.\n", []),
        ("<!-- transcript a 1 -->\n```console\n$ tfdeploy run\nerror: no key\n```\n", []),
    ],
)
def test_output_that_no_transcript_has_printed_is_found(text, found):
    assert [*PAGES["unprinted"](text)] == found
