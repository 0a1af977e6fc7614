"""What an environment is built of."""

from __future__ import annotations

import os

from ...shared import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Dict, List

WORK = ".work"  # the end of the name of a folder with what installers read
REQUIREMENTS, CONSTRAINTS = "requirements.txt", "constraints.txt"


class Order:
    """An environment to build in `folder`: the fields of BuildEnvironment, all variables
    (`environ`), the path of `uv` ("" for none), and the paths of all `wheels` ([]: they come from
    an index).

    `texts` are the files that installers read, by name.
    """

    def __init__(
        self,
        folder: str,
        requirements: List[str],
        constraints: List[str],
        locked: Dict[str, str],
        python: str,
        setup: List[str],
        environ: Dict[str, str],
        uv: str,
        wheels: List[str],
    ) -> None:
        self.folder = folder
        lines = {REQUIREMENTS: requirements, CONSTRAINTS: constraints}
        self.texts = {**locked, **{name: _text(lines[name]) for name in lines if lines[name]}}
        self.is_locked = bool(locked)
        self.is_empty = not requirements and not locked
        self.python = python
        self.setup = setup
        self.environ = environ
        self.uv = uv
        self.wheels = wheels

    @property
    def wheels_release(self) -> str:
        """The release that has the wheels, "" without wheels."""
        return os.path.basename(os.path.dirname(self.wheels[0])) if self.wheels else ""

    @property
    def work(self) -> str:
        """The folder of `texts`, in which all programs run. It is hidden, and removed at the
        end."""
        above, name = os.path.split(self.folder)
        return os.path.join(above, ".{}{}".format(name, WORK))


def _text(lines: List[str]) -> str:
    return "".join(line + "\n" for line in lines)
