"""What the user trusts is stored for that user."""

from __future__ import annotations

import os

import pytest
from support.builders import NOBODY_UID

from tfdeploy.config import inventory
from tfdeploy.errors import RunError
from tfdeploy.folders import user_folders
from tfdeploy.trust import store

TEXT = 'project = "p"\ntraining.command = "train"\nsource.path = ".."\n[hosts.a]\nworkers = 1\n'


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to others")
@pytest.mark.parametrize("name", ["", ".config"])
def test_root_stores_no_trust_in_the_home_of_another_user(home, tmp_path, monkeypatch, name):
    """As with `sudo` that keeps HOME: the user could not create ~/.config/tfdeploy any more."""
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    (home / name).mkdir(exist_ok=True)
    os.chown(home / name, NOBODY_UID, -1)
    (tmp_path / "project").mkdir()
    untrusted = inventory.parse(TEXT, tmp_path / "project" / "hosts.toml")
    with pytest.raises(RunError, match=r"can't write .* belongs to another user"):
        store.remember(untrusted)
    assert not user_folders.config_folder().exists()
