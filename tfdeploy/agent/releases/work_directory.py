"""Fill a task's directory: links to its release and data sets, its cluster file, other links."""

from __future__ import annotations

import os
from typing import List

from ...shared.records import Launch
from .. import paths


def fill(launch: Launch, work: str) -> None:
    """Fill the directory `work`. Files that the task wrote before stay. Raises OSError."""
    link_releases(launch, work)
    write_files(launch, work)
    make_links(launch, work)


def link_releases(launch: Launch, work: str) -> None:
    """Link the release and the data sets, so that `work` stores only what the task writes."""
    own = [paths.TRIALS] if launch.trials.points else []
    excluded = (launch.checkpoint_dir, *launch.data, *launch.files, *own)
    parts = [os.path.normpath(path).split(os.sep) for path in excluded]
    _link_tree(paths.release(launch.project, launch.release), work, parts)
    for place, release in launch.data.items():
        link = os.path.join(work, place)
        os.makedirs(os.path.dirname(link), exist_ok=True)
        if not os.path.lexists(link):
            os.symlink(paths.release(launch.project, release), link)


def write_files(launch: Launch, work: str) -> None:
    """Write the files that tell the task its role, anew: a resumed run may have other hosts."""
    for place, text in launch.files.items():
        path = os.path.join(work, place)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)


def make_links(launch: Launch, work: str) -> None:
    """Make the launch's links, and their targets: os.makedirs() fails at a link to nothing."""
    for place, target in launch.links.items():
        link = os.path.join(work, place)
        folder = os.path.dirname(link)
        os.makedirs(os.path.join(folder, target), exist_ok=True)
        os.makedirs(folder, exist_ok=True)
        if os.path.islink(link):
            os.remove(link)
        if not os.path.lexists(link):
            os.symlink(target, link)


def _link_tree(source: str, target: str, excluded: List[List[str]]) -> None:
    """Link what the folder `source` contains into `target`, except the paths `excluded`.

    Checkpoints must not be written into a release, and data sets are linked from other releases.
    The folders above an excluded path become real folders. Whatever exists in `target` stays.
    """
    for name in os.listdir(source):
        link, original = os.path.join(target, name), os.path.join(source, name)
        below = [path[1:] for path in excluded if path[0] == name]
        if not below:
            if not os.path.lexists(link):
                os.symlink(original, link)
        elif all(below) and os.path.isdir(original) and not os.path.islink(original):
            os.makedirs(link, exist_ok=True)
            _link_tree(original, link, below)
