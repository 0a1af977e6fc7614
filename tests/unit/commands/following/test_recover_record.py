"""When the controller asks the hosts for a newer record of a run."""

from __future__ import annotations

import pytest
from support.builders import make_inventory

from tfdeploy import run as runs
from tfdeploy.commands.following.recover_record import has_newer_record
from tfdeploy.errors import OutdatedRecord
from tfdeploy.planning import placing

RUN = "20260101-120000-abcd"
HOST = '[hosts.a]\naddress = "10.0.0.1"\nworkers = 1\n'


@pytest.mark.parametrize(
    ("known", "launched", "newer"),
    [(1, "one", True), (2, "one", False), (2, "another", True), (3, "another", False)],
)
def test_a_record_that_another_command_has_written_meanwhile_is_kept(
    tmp_path, known, launched, newer
):
    file = tmp_path / "hosts.toml"
    file.touch()
    inventory = make_inventory(HOST).copy_with({"file": file})
    plan = placing.make_plan_from_addresses(inventory)
    runs.save(runs.Run(RUN, "f00d", "a9e", inventory, plan, starts=2, launched="one"))
    outdated = OutdatedRecord("a", "outdated", "", RUN, known, file, launched)
    assert has_newer_record(outdated) is newer
