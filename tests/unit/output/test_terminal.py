"""Errors and warnings go to standard error, and text from hosts never acts on the terminal."""

from __future__ import annotations

import json

from tfdeploy.errors import AgentError, FleetError, TaskFailed, Unreachable
from tfdeploy.output.console import Console, print_json
from tfdeploy.output.run_events import print_host_lost


def test_an_error_goes_to_standard_error_with_its_hint(capsys):
    error = Unreachable("gpu-01", "no [bold]answer[/] \x1b[1m :100:", "try: ssh gpu-01")
    Console().print_error(error)
    captured = capsys.readouterr()
    assert captured.err == "error: gpu-01: no [bold]answer[/] \\x1b[1m :100:\n  try: ssh gpu-01\n"
    assert captured.out == ""


def test_what_a_host_sends_adds_no_line_to_an_error(capsys):
    sent = "gone\nerror: gpu-02: forged\u2028\x85"
    errors = [AgentError("gpu-01", sent, sent), TaskFailed("worker:0", "h", "it ended", log=[sent])]
    for error in (errors[0], FleetError(errors)):
        Console().print_error(error)
    print_host_lost(Console(), errors[0])
    lines = capsys.readouterr().err.splitlines()
    assert {line.split()[0] for line in lines} == {
        *("error:", "gone\\nerror:", "gpu-01:", "worker:0", "|", "retrying"),
    }


def test_the_log_in_an_error_is_printed_without_its_colours(capsys):
    log = ["\x1b[1m1/2\x1b[0m\b\b\b\r\x1b[1m2/2\x1b[0m loss: 1"]
    Console().print_error(TaskFailed("worker:0", "h", "it ended", log=log))
    assert capsys.readouterr().err == "error: worker:0 on h: it ended\n  | 2/2 loss: 1\n"


def test_with_json_text_goes_to_standard_error(capsys):
    Console(for_json=True).print_text("for people")
    print_json({"é": 1})
    captured = capsys.readouterr()
    assert (captured.err, json.loads(captured.out)) == ("for people\n", {"é": 1})
    assert "é" in captured.out
