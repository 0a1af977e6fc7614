"""pip's settings are translated for uv, in pip's order; uv's own decide."""

from __future__ import annotations

import pytest

from tfdeploy.shared.index_settings import for_uv, uv_toml


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
