"""What is too large to be code is pushed only if hosts.toml asks for it."""

from __future__ import annotations

import pytest

from tfdeploy.errors import PlanError
from tfdeploy.release import large

MB = 1_000_000


def many(folder, count, megabytes, suffix=".jpg"):
    return {f"{folder}{number}{suffix}": megabytes * MB for number in range(count)}


def refusal(sizes, asked_for=()):
    with pytest.raises(PlanError) as refused:
        large.refuse_large(sizes, lambda path: path.startswith(tuple(asked_for) or "?"))
    choices = [" ".join(line.split()) for line in refused.value.hint.splitlines()[1:]]
    return refused.value.message, choices


def patterns(sizes):
    [choice] = [line for line in refusal(sizes)[1] if line.endswith("out")]
    return choice.partition(" leaves")[0]


TRAIN = {"train.py": 1000}


def test_a_large_file_is_refused():
    message, choices = refusal({**TRAIN, "data/#1.bin": 100 * MB + 1})
    assert message == "data/#1.bin (100.0 MB): larger than 100.0 MB, so not sent unless asked for"
    assert choices == [
        '[data."data"] makes the folder a data set',
        r'exclude = ["/data/\\#1.bin"] leaves it out',
        r'exclude = ["!/data/\\#1.bin"] sends it',
    ]
    large.refuse_large({"data/1.bin": 100 * MB}, lambda path: False)


def test_a_folder_of_many_small_files_is_refused_in_the_same_words():
    message, choices = refusal(
        {**TRAIN, **many("images/cats/", 5000, 0.064), **many("images/", 5000, 0.064)}
    )
    assert message == (
        "images/ (640.0 MB in 10,000 files): larger than 100.0 MB, so not sent unless asked for"
    )
    assert choices == [
        '[data."images"] makes the folder a data set',
        'exclude = ["/images/"] leaves it out',
        'exclude = ["!/images/"] sends it',
    ]


@pytest.mark.parametrize(
    ("sizes", "left_out"),
    [
        ({"lib/a.py": 1, **many("lib/images/", 200, 1)}, '"/lib/images/"'),
        ({"a.py": 1, **many("", 200, 1), **many("", 50, 1, ".txt")}, '"/*.jpg"'),
        ({"lib/a.py": 1, **many("lib/", 200, 1, ".p#")}, r'"/lib/*.p\\#"'),
        ({"lib/a.py": 1, "lib/one": 90 * MB, "b.c": 20 * MB}, '"/lib/one"'),
        ({**many("a/", 60, 1), **many("b/", 50, 1), **many("c/", 70, 1)}, '"/c/", "/a/"'),
        ({**many("a/", 60, 1), "b.bin": 150 * MB}, '"/b.bin"'),
    ],
)
def test_the_largest_parts_that_are_no_code_are_named(sizes, left_out):
    assert patterns(sizes) == f"exclude = [{left_out}]"


def test_folders_that_are_large_only_together_are_named_as_such():
    message, choices = refusal({**TRAIN, **many("a/", 60, 1), **many("b/", 50, 1)})
    assert message == (
        "a/ (60.0 MB in 60 files): with it the source is larger than 100.0 MB, so not sent unless "
        "asked for"
    )
    assert len(choices) == 3


def test_what_is_asked_for_does_not_count():
    sizes = {**TRAIN, **many("a/", 90, 1), **many("b/", 500, 1), "c/large.bin": 200 * MB}
    large.refuse_large(sizes, lambda path: path.startswith(("b/", "c/")))
    assert refusal(sizes, asked_for=["b/"])[0].startswith("c/large.bin (200.0 MB): larger than")
