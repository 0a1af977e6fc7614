"""Fill a task's directory: a copy of its release, links to data sets, its cluster file, links."""

from __future__ import annotations

import os

from ...shared.records import Launch
from .. import paths
from .copy_release import LIMITS, CopyLimits, copy_release


def fill(launch: Launch, work: str, limits: CopyLimits = LIMITS) -> None:
    """Fill the directory `work`. Files that the task wrote before stay. Raises OSError."""
    copy_release(launch, work, limits)
    if launch.directory.data:
        link_data_sets(launch, work)
    if launch.directory.files:
        write_files(launch, work)
    if launch.directory.links:
        make_links(launch, work)


def link_data_sets(launch: Launch, work: str) -> None:
    """Link the data sets: they may be large, and are read-only."""
    for place, release in launch.directory.data.items():
        link = os.path.join(work, place)
        os.makedirs(os.path.dirname(link), exist_ok=True)
        if not os.path.lexists(link):
            os.symlink(paths.release(launch.project, release), link)


def write_files(launch: Launch, work: str) -> None:
    """Write the files that tell the task its role, anew: a resumed run may have other hosts."""
    for place, text in launch.directory.files.items():
        path = os.path.join(work, place)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)


def make_links(launch: Launch, work: str) -> None:
    """Make the launch's links, and their targets: os.makedirs() fails at a link to nothing."""
    for place, target in launch.directory.links.items():
        link = os.path.join(work, place)
        folder = os.path.dirname(link)
        os.makedirs(os.path.join(folder, target), exist_ok=True)
        os.makedirs(folder, exist_ok=True)
        if os.path.islink(link):
            os.remove(link)
        if not os.path.lexists(link):
            os.symlink(target, link)
