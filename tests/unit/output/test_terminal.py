"""Errors and warnings go to standard error, and text from hosts never acts on the terminal."""

from __future__ import annotations

import json

from tfdeploy.errors import TaskFailed, Unreachable
from tfdeploy.output.console import Console, print_json


def test_an_error_goes_to_standard_error_with_its_hint(capsys):
    error = Unreachable("gpu-01", "no [bold]answer[/] \x1b[1m :100:", "try: ssh gpu-01")
    Console().print_error(error)
    captured = capsys.readouterr()
    assert captured.err == "error: gpu-01: no [bold]answer[/] \\x1b[1m :100:\n  try: ssh gpu-01\n"
    assert captured.out == ""


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
