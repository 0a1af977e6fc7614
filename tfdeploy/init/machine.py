"""What is known of a machine before it has a table in hosts.toml. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdeploy.config.models import HostSettings
from tfdeploy.formatting.hostlist import fold_names
from tfdeploy.formatting.humanize import escape_line, format_count, format_size
from tfdeploy.planning.frameworks import title

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdeploy.init.program import Program

DEFAULT_PYTHON = HostSettings.python
AUTO = "auto"  # free ports, chosen at each start


@dataclass(frozen=True)
class Machine:
    """A machine that answered.

    `python` is the value of the key: "python3", or a path. `framework` is the version of the
    program's framework, "" if no Python has it; `import_error` says which Python has it and why its
    import failed, `missing` are the other packages of the program that its Python lacks.
    `architecture` and `libc` are words such as x86_64 and "glibc 2.36". `ports` are those of its
    tasks, and `address` is that at which the other hosts reach it; None if the default will do.
    `sharing` says which hosts have one home directory: "all", "some" or "none".
    """

    name: str
    user: str
    is_local: bool
    cpus: int
    memory_bytes: int
    free_bytes: int
    gpus: tuple[str, ...]
    python: str
    python_version: str
    framework: str
    import_error: str = ""
    missing: tuple[str, ...] = ()
    architecture: str = ""
    libc: str = ""
    sharing: str = "none"
    addresses: tuple[str, ...] = ()
    ports: str = AUTO
    address: str | None = None

    @property
    def summary(self) -> str:
        """Return its size in words: 4 NVIDIA H100, 64 CPUs, 512.0 GB."""
        gpus = [f"{count} {name}" for name, count in Counter(self.gpus).items()]
        size = (format_count(self.cpus, "CPU"), format_size(self.memory_bytes))
        return escape_line(", ".join((*gpus, *size)))


def missing_packages(program: Program, machines: Sequence[Machine]) -> str:
    """Return a sentence about the hosts that lack some of the program's packages; "" if none
    does."""
    without = [machine.name for machine in machines if not machine.framework]
    if without:
        found = f"no Python with {title(program.framework)} on {fold_names(without)}"
    else:
        lacking = {m.name: m.missing for m in machines if m.missing}
        missing = dict.fromkeys(name for names in lacking.values() for name in names)
        found = f"no {', '.join(missing)} on {fold_names(lacking)}" if missing else ""
    return f"{escape_line(found)}: tfdeploy installs the packages of [env]" if found else ""
