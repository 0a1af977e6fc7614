"""A site whose sshds are reached with OpenSSH or Fabric."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.ssh_sites import SshSite

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.sshd import Keys


@pytest.fixture
def site(tmp_path: Path, keys: Keys) -> Iterator[SshSite]:
    test_site = SshSite(tmp_path, keys)
    yield test_site
    test_site.end()
