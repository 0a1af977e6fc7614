"""Which of a host's Pythons is the best."""

from __future__ import annotations

import pytest

from tfdeploy.init.explore import count_pythons, rank_pythons
from tfdeploy.shared.protocol.preflight import PythonFound

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
