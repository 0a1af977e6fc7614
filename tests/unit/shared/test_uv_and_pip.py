"""How far an installer is, and why it failed, as its lines say it; and pip's settings, which are
translated for uv in pip's order: uv's own decide."""

from __future__ import annotations

import pytest

from tfdeploy.shared.uv_and_pip import (
    Failed,
    InstallerProgress,
    clean,
    error_words,
    for_uv,
    overrides,
    uv_toml,
)

CONFLICT = "Because you require numpy<2 and numpy>2, your requirements are unsatisfiable."

UV = [
    ("Resolved 40 packages in 458ms", "Resolved 40 packages in 458ms"),
    ("Downloading tensorflow (592.6MiB)", "downloading tensorflow (592.6MiB)"),
    ("Downloading numpy (16.1MiB)", "downloading tensorflow (592.6MiB) and 1 more"),
    (" Downloaded numpy", "downloading tensorflow (592.6MiB)"),
    ("", "downloading tensorflow (592.6MiB)"),
    (" Downloaded tensorflow", "Downloaded tensorflow"),
    ("Prepared 40 packages in 5.00s", "Prepared 40 packages in 5.00s"),
    ("Installed 40 packages in 224ms", "compiling"),
    ("", "compiling"),
]
PIP = [
    ("Collecting numpy", "Collecting numpy"),
    ("  Downloading numpy-2.4.6-cp311-cp311-linux.whl (16.9 MB)",
     "Downloading numpy-2.4.6-cp311-cp311-linux.whl (16.9 MB)"),
    ("Saved ./numpy-2.4.6-cp311-cp311-linux.whl", "Saved ./numpy-2.4.6-cp311-cp311-linux.whl"),
]  # fmt: skip


@pytest.mark.parametrize("output", [UV, PIP], ids=["uv", "pip"])
def test_the_package_that_is_being_downloaded_is_named(output):
    progress = InstallerProgress()
    for line, text in output:
        progress.take(line)
        assert progress.text == text


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


@pytest.mark.parametrize(
    ("lines", "is_left_out"),
    [
        (["tensorflow-cpu==2.21.0", "tf_keras==2.21.0"], True),
        (["--pre", "tensorflow_cpu == 2.21.0 ; python_version > '3'", "a[b]==1", "pip"], True),
        (["tensorflow-rocm==2.18.1"], True),
        (["tensorflow-cpu", "numpy", "tf_keras"], True),
        (["tensorflow-cpu", "numpy==1.26.4", "tf_keras"], False),
        (["tensorflow-cpu", "tf_keras", "numpy<2"], False),
        (["tensorflow-cpu==2.17.1", "tf_keras"], False),  # tensorflow has to choose 2.17
        (["tensorflow-cpu==2.17.*", "tf_keras==2.17.0"], False),
        (["tensorflow-cpu==2.21.0", "tensorflow==2.21.0"], False),  # the user's own wish
        (["tensorflow[and-cuda]==2.21.0", "tf_keras==2.21.0"], False),
        (["tf_keras==2.21.0"], False),
        (["tensorflow-cpu==2.21.0 --hash=sha256:00"], False),  # a file that lists all
        ([], False),
    ],
)
def test_a_second_tensorflow_is_left_out_if_it_chooses_no_version(lines, is_left_out):
    assert overrides(lines) == (["tensorflow; python_version < '0'"] if is_left_out else [])


# Settings


def translated(environ=(), **files):
    texts = {f"/etc/{name}.conf": text for name, text in files.items()}
    return for_uv(dict(environ), lambda path: texts.get(path, ""))


def test_a_file_of_pip_is_read():
    text = "[global]\nindex-url = https://a/simple\nextra-index-url =\n  https://b\n  https://c\n"
    assert translated(pip=text) == {
        "UV_DEFAULT_INDEX": "https://a/simple", "UV_INDEX": "https://b https://c",
    }  # fmt: skip


def test_variables_override_files():
    found = translated({"PIP_FIND_LINKS": "/x /y"}, pip="[install]\nfind-links = /z")
    assert found == {"UV_FIND_LINKS": "/x,/y"}


@pytest.mark.parametrize("name", ["UV_DEFAULT_INDEX", "UV_INDEX_URL"])
def test_what_is_set_for_uv_itself_decides(name):
    assert translated({name: "https://own", "PIP_INDEX_URL": "https://a"}) == {}


@pytest.mark.parametrize("text", ["", "not a file of pip", "[global]\nindex-url", "[other]\na = b"])
def test_a_broken_file_is_ignored(text):
    assert translated(pip=text) == {}


@pytest.mark.parametrize(
    ("environ", "text"),
    [
        ({}, ""), ({"PIP_NO_INDEX": "0"}, ""),
        ({"PIP_NO_INDEX": "1"}, "no-index = true\n"), ({"UV_NO_INDEX": "1"}, "no-index = true\n"),
    ],
)  # fmt: skip
def test_no_index_is_in_a_file_because_uv_has_no_variable(environ, text):
    assert uv_toml(environ, lambda path: "") == text
