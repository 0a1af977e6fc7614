"""The report of imported versions: what is in the place of its file stops no training."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from tfdeploy.inside import tfdeploy_versions


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_replaced_the_report_fails_at_once(tmp_path, make):
    file = tmp_path / "versions"
    make(file)
    module = SimpleNamespace(__name__="jax", __version__="1.0")
    with pytest.raises(OSError):
        tfdeploy_versions.report(module, os.fspath(file))
