"""Compare what the environments of hosts contain. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tfdeploy.errors import AgentError
from tfdeploy.formatting.humanize import format_count

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    Packages = Mapping[str, str]

MAX_NAMED = 3  # packages that an error names
# What venv and uv put into an environment by themselves, in any version.
TOOLS = ("pip", "setuptools", "wheel")


def differences(packages: Mapping[str, Packages]) -> Iterator[AgentError]:
    """Yield an error for each host that has another version of a package than most of the hosts
    that have it; `packages` are the versions by package and host."""
    versions: dict[str, Counter[str]] = {}
    for installed in packages.values():
        for name, version in installed.items():
            versions.setdefault(name, Counter())[version] += 1
    mixed = (name for name in versions if len(versions[name]) > 1 and name not in TOOLS)
    usual = {name: versions[name].most_common(1)[0][0] for name in sorted(mixed)}
    for host, installed in packages.items():
        names = [name for name in usual if installed.get(name, usual[name]) != usual[name]]
        if names:
            yield _differs(host, installed, {name: usual[name] for name in names})


def _differs(host: str, installed: Packages, usual: Packages) -> AgentError:
    named = [f"{name} {installed[name]} instead of {usual[name]}" for name in usual][:MAX_NAMED]
    more = len(usual) - len(named)
    others = f" and {format_count(more, 'other package')}" if more else ""
    first = next(iter(usual))
    return AgentError(
        host,
        f"its environment differs from those of other hosts: {', '.join(named)}{others}",
        f'name the version in env.requirements, such as "{first}=={usual[first]}", and push again',
    )
