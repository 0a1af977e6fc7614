"""Which of a host's Pythons is the best."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tfdeploy.config.inventory import Host
from tfdeploy.init import explore
from tfdeploy.init.explore import count_pythons, rank_pythons
from tfdeploy.shared.protocol.preflight import ImportFacts, MachineFacts, PythonFound, SurveyAnswer

DEFAULT = PythonFound("python3", "3.11.2", "2.16.1")
NEW = PythonFound("~/new/bin/python", "3.12.1", "2.21.0")
OLD = PythonFound("/opt/old/bin/python", "3.9.1", "2.9.0")
NONE = PythonFound("/usr/bin/python3.9", "3.9.1", "")


@pytest.mark.parametrize(
    ("own", "others", "expected"),
    [
        ([NONE, OLD, NEW], [], [NEW, OLD]),
        ([OLD, NEW, DEFAULT], [], [DEFAULT, NEW, OLD]),
        ([DEFAULT, OLD], [[OLD]], [OLD, DEFAULT]),
        ([NONE], [], []),
    ],
)
def test_the_python_that_most_hosts_have_comes_first(own, others, expected):
    assert rank_pythons(own, count_pythons([own, *others])) == expected


@pytest.mark.parametrize("path", ["-c", "rm", "/a\nb", "~evil/python", ""])
def test_a_path_that_hosts_toml_could_not_have_is_ignored(path):
    own = [PythonFound(path, "3.11.2", "2.21.0")]
    assert rank_pythons(own, count_pythons([own])) == []


@pytest.mark.parametrize(
    ("imported", "expected"),
    [
        (ImportFacts(version="2.21.0"), ("~/new/bin/python", "2.21.0", "")),
        (ImportFacts(error="too long", slow=True), ("~/new/bin/python", "2.21.0", "too long")),
        (ImportFacts(error="no CUDA"), ("python3", "", "no CUDA")),
    ],
)
def test_an_import_that_is_only_slow_is_no_lack_of_the_framework(imported, expected):
    """As on a busy host: it has the version that is installed."""
    facts = MachineFacts(2, 10**9, {}, [], [PythonFound("python3", "3.11.2", ""), NEW], "", "")
    survey = SurveyAnswer(
        "3.11.2", {"tensorflow": imported}, "", {}, "", 0, [], (0.0, 0.0), "", False
    )
    agent = SimpleNamespace(ask=lambda *_: survey)
    found, _ = explore._confirm(agent, Host(name="a"), facts, [NEW], "tensorflow", [])
    error = f"~/new/bin/python: {expected[2]}" if expected[2] else ""
    assert (found.python, found.framework, found.import_error) == (*expected[:2], error)
