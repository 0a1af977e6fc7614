"""What all tests share: what outlives a command at home does not outlive the tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tfdeploy.transport import reaching

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session", autouse=True)
def own_keepers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nor do the tests meet the connections and answers that the developer's commands keep."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("runtime")))
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield
        reaching.hang_up()
