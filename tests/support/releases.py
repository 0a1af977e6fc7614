"""Releases on a host, for tests of what is done with them."""

from __future__ import annotations

import json
import os

from tfdeploy.agent.releases import manifest
from tfdeploy.release import snapshot


def write_manifest(folder):
    """Write the manifest of a release of the project p as it is now, as if it had been received."""
    folder.parent.parent.joinpath("manifests").mkdir(exist_ok=True)
    entries = {
        path: [*entry, *manifest.fingerprint(os.fspath(folder / path))]
        for path, entry in snapshot.take(folder).manifest.items()
    }
    file = folder.parent.parent / "manifests" / f"{folder.name}.json"
    file.write_text(json.dumps(entries))
    return folder
