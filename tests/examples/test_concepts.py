"""docs/concepts.md: each program runs and prints what is shown, and the pictures are legible."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from support import warm

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "concepts.md").read_text()
BLOCK = re.compile(r"^```python\n(.*?)^```\n\n(?:```text\n(.*?)^```)?", re.M | re.S)
FIRST, *PROGRAMS = BLOCK.findall(PAGE)
HOOK = re.compile(r"^\| `(\w+Hook)` \| .* \| `(.+)` \|$", re.M)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_a_program_of_the_page_prints_what_the_page_shows(number, tmp_path):
    code, shown = PROGRAMS[number]
    done = warm.run("-c", FIRST[0] + code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert shown
    assert done.stdout == shown


def test_each_line_of_the_table_of_hooks_is_in_a_program_that_runs():
    rows = HOOK.findall(PAGE)
    assert len(rows) == len(re.findall(r"^\| `\w+Hook` ", PAGE, re.M)) >= 7
    programs = "".join(code for code, _ in PROGRAMS)
    for hook, line in rows:
        assert line.startswith(f"{hook}(")
        assert f"v1.train.{line}" in programs


@pytest.mark.parametrize("picture", re.findall(r"^!\[.*\]\((.+\.svg)\)$", PAGE, re.M))
def test_a_picture_has_a_title_and_its_own_background(picture):
    root = ElementTree.parse(DOCS / picture).getroot()
    children = [element.tag.rpartition("}")[2] for element in root]
    assert children[0] == "title"
    background = root[children.index("rect")]
    assert (background.get("width"), background.get("height")) == (
        root.get("width"),
        root.get("height"),
    )
