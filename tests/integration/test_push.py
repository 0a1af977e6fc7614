"""The release is what was hashed, or there is none."""

from __future__ import annotations

import pytest

from tfdeploy import inventory
from tfdeploy.errors import FleetError, TfdeployError, TransferFailed
from tfdeploy.fleet import Fleet
from tfdeploy.steps.plan import plan_all
from tfdeploy.steps.push import push


@pytest.mark.parametrize("change", ["another text", "the same size"])
def test_a_source_that_changes_while_it_is_pushed_is_refused_by_name(world, change):
    project = world.project()
    weights = project.folder / "weights"
    weights.write_text("y" * len(change))
    intent = plan_all(inventory.load(project.folder / "hosts.toml"))
    weights.write_text(change)
    with Fleet(intent.inventory) as fleet, pytest.raises(TfdeployError) as refused:
        push(fleet, intent)
    errors = refused.value.errors if isinstance(refused.value, FleetError) else [refused.value]
    assert len(errors) == len(project.hosts)
    assert all(isinstance(error, TransferFailed) for error in errors)
    assert all("weights changed while it was pushed" in error.message for error in errors)
    assert all(project.releases(host) == set() for host in project.hosts)
