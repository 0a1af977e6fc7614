"""A pattern of an ignore file takes linear time, and hosts get the same one."""

from __future__ import annotations

import re
import time

import pytest

from tfdeploy.release import gitignore


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("*a" * 40 + "*b", "a" * 200),
        ("*?" * 30 + "*b", "a" * 200),
        ("*" + "?" * 30 + "b", "a" * 200),
        ("*[a-c]" * 30 + "*b", "a" * 200),
        ("/**/*a" * 30 + "b", "/".join(["aaaa"] * 200)),
        ("a/**/" * 10 + "b", "/".join("a" * 300)),
        ("a/**/" * 30 + "*/*a*a*b", "/".join(["aaa"] * 300)),
        ("**/" * 100 + "b", "/".join("a" * 300)),
        ("*" * 4000 + "b", "a" * 200),
        ("[[]" * 1000 + "b", "[" * 200),
    ],
)
def test_a_pattern_is_matched_in_linear_time(line, path):
    start = time.thread_time()
    pattern = gitignore.translate(line)
    assert not pattern.regex.fullmatch(path)
    assert not re.match(pattern.inside, path)
    assert time.thread_time() - start < 30


@pytest.mark.parametrize(
    "line", ["", "/", "!", "#a", "a[", "[[:x:]]", "a\\", "[a-\\", "[]", "[!]", "a" * 4097]
)
def test_a_line_that_can_match_nothing_is_no_pattern(line):
    assert gitignore.translate(line) is None


@pytest.mark.parametrize(
    ("line", "inside", "outside"),
    [
        ("*", ["a", "a/b"], []),
        ("models/", ["models/a", "x/models/a"], ["models", "x/mymodels/a"]),
        ("models", ["models", "models/a", "x/models"], ["models2"]),
        ("/a/*.h5", ["a/b.h5", "a/b.h5/c"], ["x/a/b.h5", "a/b.h5x"]),
        ("a/**/c", ["a/c", "a/b/b/c/d"], ["a/cc", "x/a/c"]),
        ("a/**", ["a/b", "a/b/c"], ["a", "ab"]),
        ("a\nb*", ["a\nbc", "x\n/a\nb"], ["a", "b"]),
        ("*.h5", ["a\n.h5", "\n/a.h5"], ["a.h5\n"]),
    ],
)
def test_hosts_get_an_expression_that_also_matches_what_is_in_a_folder(line, inside, outside):
    [[includes, expression]] = gitignore.to_expressions("training.outputs", [line])
    assert includes
    assert [path for path in inside + outside if re.match(expression, path)] == inside
