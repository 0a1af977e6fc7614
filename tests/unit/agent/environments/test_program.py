"""The words in which installers say why they failed."""

from __future__ import annotations

import pytest

from tfdeploy.agent.environments.program import Failed, clean, error_words

CONFLICT = "Because you require numpy<2 and numpy>2, your requirements are unsatisfiable."


@pytest.mark.parametrize(
    ("output", "words"),
    [
        (
            f"Using Python 3.11.2\nerror: No solution found\n  cause: {CONFLICT}\nhint: x",
            f"No solution found: {CONFLICT[:-1]}",
        ),
        (
            f"  × No solution found when resolving dependencies:\n  ╰─▶ {CONFLICT}",
            f"No solution found when resolving dependencies: {CONFLICT[:-1]}",
        ),
        (
            "Looking in links: /w\nERROR: Could not find a version that satisfies x\n"
            "ERROR: No matching distribution found for x",
            "Could not find a version that satisfies x: No matching distribution found for x",
        ),
        ("error: Request failed after 3 retries in 11.9s\n  cause: refused",
         "Request failed after 3 retries: refused"),
        ("one\ntwo", "two"),
    ],
)  # fmt: skip
def test_the_words_are_those_of_the_installer(output, words):
    assert error_words(output.splitlines()) == words


def test_a_program_that_prints_nothing_has_its_exit_code():
    assert Failed(3, []).words == "exit 3, and it printed nothing"


def test_words_have_a_limit():
    assert len(error_words(["error: " + "x" * 9999])) <= 500


def test_colors_and_passwords_are_removed():
    line = "\x1b[31merror\x1b[0m: https://me:secret@host/simple/ and https://token@host"
    assert clean(line) == "error: https://***@host/simple/ and https://***@host"
