"""Compare what the hosts of one run import. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdeploy.errors import TfdeployError
from tfdeploy.formatting.hostlist import fold_names
from tfdeploy.formatting.humanize import escape_line
from tfdeploy.planning.frameworks import TITLES, title

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfdeploy.config.inventory import Training

    Versions = Mapping[str, Mapping[str, str]]  # by host, and by what it is the version of

ONE_MINOR = ": the tasks of one run need the same minor version"
INSTALL = "install one version on all hosts, as requirements of [env] do"
ANY = '; versions = "any" in [training] starts anyway'


def differences(
    found: Versions, training: Training
) -> tuple[list[TfdeployError], list[TfdeployError]]:
    """Return why the tasks of these hosts can't train together, and a note of what else differs.

    They can't with different minor versions of a framework, unless training.versions is "any".
    """
    refused: list[str] = []
    noted: list[str] = []
    for name in sorted({name for versions in found.values() for name in versions}):
        versions = {host: each[name] for host, each in found.items() if name in each}
        minors = {host: ".".join(each.split(".")[:2]) for host, each in versions.items()}
        shown = minors if name == "Python" else versions
        if len({*shown.values()}) > 1:
            is_refused = name in TITLES and len({*minors.values()}) > 1
            is_refused = is_refused and training.versions != "any"
            (refused if is_refused else noted).append(
                escape_line(f"{title(name)} {_by_version(shown)}")
            )
    refusals = [TfdeployError("; ".join(refused) + ONE_MINOR, INSTALL + ANY)] if refused else []
    notes = [TfdeployError(f"hosts differ: {'; '.join(noted)}", INSTALL)] if noted else []
    return refusals, notes


def _by_version(versions: Mapping[str, str]) -> str:
    """Return for example `2.15.1 on gpu-03, 2.16.1 on gpu-[01-02]`."""
    hosts: dict[str, list[str]] = {}
    for host, version in sorted(versions.items()):
        hosts.setdefault(version, []).append(host)
    rarest_first = sorted(hosts.items(), key=lambda item: (len(item[1]), item[0]))
    return ", ".join(f"{version} on {fold_names(names)}" for version, names in rarest_first)
