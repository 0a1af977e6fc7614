"""A hosts.toml that can't be read at all: the sentence that says what it is instead."""

from __future__ import annotations

import pytest

from tfdeploy import inventory as inventories
from tfdeploy.errors import InventoryError
from unit.made import HINT, refusal, text


def load_refused(file):
    with pytest.raises(InventoryError) as refused:
        inventories.load(file)
    assert refused.value.exit_code == 2
    return str(refused.value)


def test_a_missing_file_says_where_to_get_one(tmp_path):
    file = tmp_path / "hosts.toml"
    assert load_refused(file) == (
        f"{file}: there is no such file\n  copy hosts.example.toml to it, or say --hosts FILE"
    )


def test_a_folder_is_no_file(tmp_path):
    assert load_refused(tmp_path) == f"{tmp_path}: can't be read: Is a directory"


@pytest.mark.parametrize("content", ["", " \n\t\n"])
def test_an_empty_file_is_called_empty(tmp_path, content):
    file = tmp_path / "hosts.toml"
    file.write_text(content)
    assert load_refused(file) == f"{file}: the file is empty\n  {HINT}"


def test_what_is_not_utf8_is_shown_with_its_line(tmp_path):
    file = tmp_path / "hosts.toml"
    file.write_bytes(b'project = "p"\n\n# caf\xe9\n')
    assert load_refused(file) == f"{file}: line 3 is not UTF-8 (byte 0xe9), which TOML must be"


def test_a_byte_order_mark_is_no_part_of_the_file(tmp_path):
    file = tmp_path / "hosts.toml"
    file.write_bytes(b"\xef\xbb\xbf" + text().encode())
    assert inventories.load(file).project == "p"


def test_what_is_not_toml_is_shown_with_line_and_column():
    assert refusal('project = "p"\nhosts = [1,,2]\n') == (
        ["not TOML: Invalid value (at line 2, column 12)"],
        "",
    )


def test_one_table_twice_is_refused_with_its_line():
    sentences, _ = refusal(text("[hosts.a]\nps = 1\n[hosts.a]\nps = 2"))
    assert sentences == ["not TOML: Cannot declare ('hosts', 'a') twice (at line 8, column 9)"]


def test_one_key_twice_is_refused_with_its_line():
    sentences, _ = refusal(text("[hosts.a]\nps = 1\nps = 2"))
    assert sentences == ["not TOML: Cannot overwrite a value (at line 8, column 7)"]
