"""What interrupted builds of environments have left."""

from __future__ import annotations

import os

from ...shared import TYPE_CHECKING
from .. import paths
from . import lock, marker
from .order import WORK

if TYPE_CHECKING:
    from typing import Iterator


def leftovers(project: str) -> Iterator[str]:
    """Yield the folders that interrupted builds have left. Nobody builds them now."""
    folder = paths.environments(project)
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        path = os.path.join(folder, name)
        is_work = name.startswith(".") and name.endswith(WORK)
        environment = name[1 : -len(WORK)] if is_work else name
        if os.path.isdir(path) and (is_work or not name.startswith(".")):
            with lock.taken(project, environment) as is_free:
                if is_free and (is_work or not os.path.exists(marker.file(path))):
                    yield path
