"""A hosts.toml that can't be read or is not TOML: the message that refuses it."""

from __future__ import annotations

import pytest
from support.builders import EXAMPLE_HINT, hosts_toml, refusal_of

from tfdeploy.config import inventory as inventories
from tfdeploy.errors import InventoryError


def load_error(file):
    with pytest.raises(InventoryError) as refused:
        inventories.load(file)
    assert refused.value.exit_code == 2
    return str(refused.value)


def test_the_hint_for_a_missing_file_says_how_to_create_one(tmp_path):
    file = tmp_path / "hosts.toml"
    assert load_error(file) == (
        f"{file}: there is no such file\n"
        "  pass --hosts FILE, or change to its folder; tfdeploy init writes a new one"
    )


def test_a_folder_is_refused(tmp_path):
    assert load_error(tmp_path).startswith(f"{tmp_path} is a folder; expected a file\n")


@pytest.mark.parametrize("content", ["", " \n\t\n"])
def test_an_empty_file_is_refused(tmp_path, content):
    file = tmp_path / "hosts.toml"
    file.write_text(content)
    assert load_error(file) == f"{file}: the file is empty\n  {EXAMPLE_HINT}"


def test_text_that_is_not_utf8_is_refused_with_its_line(tmp_path):
    file = tmp_path / "hosts.toml"
    file.write_bytes(b'project = "p"\n\n# caf\xe9\n')
    assert (
        load_error(file)
        == f"{file}: line 3 is not UTF-8 (byte 0xe9)\n  save the file as UTF-8, which TOML requires"
    )


def test_a_byte_order_mark_is_ignored(tmp_path):
    file = tmp_path / "hosts.toml"
    file.write_bytes(b"\xef\xbb\xbf" + hosts_toml().encode())
    assert inventories.load(file).project == "p"


def test_invalid_toml_is_refused_with_line_and_column():
    assert refusal_of('project = "p"\nhosts = [1,,2]\n') == (
        ["not valid TOML: Invalid value (at line 2, column 12)"],
        "",
    )


def test_text_without_quotes_is_refused_with_a_hint():
    messages, hint = refusal_of("project = digits\n")
    assert messages == ["not valid TOML: Invalid value (at line 1, column 11)"]
    assert hint == 'put text in quotes: project = "digits"'


def test_a_table_that_occurs_twice_is_refused_with_its_line():
    messages, _ = refusal_of(hosts_toml("[hosts.a]\nps = 1\n[hosts.a]\nps = 2"))
    assert messages == ["not valid TOML: Cannot declare ('hosts', 'a') twice (at line 8, column 9)"]


def test_a_key_that_occurs_twice_is_refused_with_its_line():
    messages, _ = refusal_of(hosts_toml("[hosts.a]\nps = 1\nps = 2"))
    assert messages == ["not valid TOML: Cannot overwrite a value (at line 8, column 7)"]
