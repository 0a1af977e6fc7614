"""Which tests may run side by side: those of one file follow each other, and so do all that use the
hosts in containers, for there is one set of them."""

from __future__ import annotations

import pytest

HOSTS = ("e2e/", "faults/test_machines_")


def pytest_collection_modifyitems(items):
    for item in items:
        file = item.nodeid.partition("::")[0]
        uses_hosts = any(place in file for place in HOSTS)
        item.add_marker(pytest.mark.xdist_group("hosts" if uses_hosts else file))
