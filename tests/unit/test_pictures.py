"""The pictures of the documentation: each is made by a command, is shown, and is small."""

from __future__ import annotations

import os
import pwd
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS, PICTURES = ROOT / "docs", ROOT / "docs" / "pictures"
SCRIPTS = DOCS / "make_pictures"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
IMAGE = re.compile(r"!\[([^\]]*)\]\(([^)]+)\)")
LIMITS = {".svg": 500_000, ".png": 300_000}  # bytes
# What draws the pictures that are not in docs/pictures.
OTHERS = ("examples/figures/prose.py", "tests/bench/picture.py")
# Diagrams of ideas, which show no output: tests/examples/test_concepts.py checks them.
DIAGRAMS = ("concepts-cluster.svg", "concepts-updates.svg")
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def files():
    """The module with the list of pictures, which needs no library."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(DOCS))
        from make_pictures import files

        yield files


def shown():
    """Return (page, text, picture) for each image of a page."""
    return [
        (page.name, text, (page.parent / target).resolve())
        for page in PAGES
        for text, target in IMAGE.findall(page.read_text())
        if "://" not in target
    ]


@pytest.mark.parametrize(("page", "text", "picture"), shown())
def test_each_picture_of_a_page_exists_and_has_a_text(page, text, picture):
    assert picture.is_file()
    assert len(text) > 20, f"{page}: {picture.name} says nothing to people who can't see it"


@pytest.mark.parametrize(("page", "text", "picture"), shown())
def test_each_picture_of_a_page_is_made_by_a_command(files, page, text, picture):
    if picture.parent == PICTURES:
        assert picture.name in [name for name, _ in files.ALL]
    elif picture.name not in DIAGRAMS:
        assert any(picture.name in (ROOT / script).read_text() for script in OTHERS)


def test_the_folder_has_exactly_the_pictures_of_the_list_and_all_are_shown(files):
    names = sorted(name for name, _ in files.ALL)
    assert sorted(file.name for file in PICTURES.iterdir()) == names
    assert {picture.name for _, _, picture in shown()} >= {*names}


def test_make_docs_pictures_makes_each_picture_of_the_list(files):
    assert re.search(
        r"^docs-pictures:.*\n.*\n.* -m make_pictures$", (ROOT / "Makefile").read_text(), re.M
    )
    scripts = [file for file in SCRIPTS.glob("*.py") if file.name != "files.py"]
    main = "".join(file.read_text().partition("\n\n\n")[2] for file in scripts)
    names = [name for name, value in vars(files).items() if value in files.ALL]
    assert len(names) == len(files.ALL)
    assert [name for name in names if not re.search(rf"\b{name}\b", main)] == []


@pytest.mark.parametrize("file", sorted(PICTURES.iterdir()), ids=lambda file: file.name)
def test_a_picture_is_small(file):
    assert 1000 < file.stat().st_size < LIMITS[file.suffix]


@pytest.mark.parametrize("file", sorted(PICTURES.glob("*.svg")), ids=lambda file: file.name)
def test_a_drawing_needs_nothing_from_elsewhere(file):
    text = file.read_text()
    root = ElementTree.fromstring(text)
    assert root.tag == f"{SVG}svg"
    names = r'xmlns(:\w+)?="[^"]*"|<metadata>.*?</metadata>|<!DOCTYPE[^>]*>'
    without_names = re.sub(names, "", text, flags=re.S)
    assert "://" not in without_names
    assert not [each.tag for each in root.iter() if each.tag in (f"{SVG}script", f"{SVG}image")]


@pytest.mark.parametrize("file", sorted(PICTURES.glob("*.svg")), ids=lambda file: file.name)
def test_a_drawing_names_no_folder_of_its_maker(file):
    assert str(ROOT) not in file.read_text()
    assert pwd.getpwuid(os.getuid()).pw_dir + "/" not in file.read_text()
