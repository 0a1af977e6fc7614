"""The text of `plan`."""

from __future__ import annotations

from tfdeploy.output.plan_output import NETWORKS


def test_the_line_about_the_network_fits_into_80_columns():
    assert all(len(f"network  {text}") <= 80 for text in NETWORKS.values())
