"""Plain patterns mean what they mean to pathspec."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

from tfdeploy.release import plain_patterns

names = st.text(st.sampled_from("ab.-_0~*"), min_size=1, max_size=4)
paths = st.lists(names, min_size=1, max_size=3).map("/".join)
starts, ends = st.sampled_from(["", "/", "*."]), st.sampled_from(["", "/"])
lines = st.builds("{}{}{}".format, starts, paths, ends)


@given(lines)
def test_a_plain_pattern_has_pathspecs_expression(line):
    translated = plain_patterns.to_expression(line)
    assert translated is None or translated == GitIgnoreSpecPattern(line).regex.pattern


@pytest.mark.parametrize(
    "line",
    [
        *("*", ".git", "__pycache__/", "*.pyc", "*.egg-info/", "/runs/", "/hosts.toml", "data/raw"),
        *("hosts*.toml", "*~", ".*", "/logs/*", "data/*/raw", "*_cache/", "*/"),
    ],
)
def test_the_patterns_of_most_projects_are_plain(line):
    assert plain_patterns.to_expression(line) == GitIgnoreSpecPattern(line).regex.pattern


@pytest.mark.parametrize(
    "line",
    [
        "",
        "/",
        "!a",
        "a**b",
        "**/a",
        "a/**",
        "a?",
        "[ab]",
        "a b",
        "a ",
        "é",
        "a//b",
        r"\\#a",
        "#a",
        "//a",
    ],
)
def test_any_other_pattern_is_left_to_pathspec(line):
    assert plain_patterns.to_expression(line) is None
