"""What an installer does now, as its lines say it."""

from __future__ import annotations

import pytest

from tfdeploy.agent.environments.installers import Progress

UV = [
    ("Resolved 40 packages in 458ms", "Resolved 40 packages in 458ms"),
    ("Downloading tensorflow (592.6MiB)", "downloading tensorflow (592.6MiB)"),
    ("Downloading numpy (16.1MiB)", "downloading tensorflow (592.6MiB) and 1 more"),
    (" Downloaded numpy", "downloading tensorflow (592.6MiB)"),
    ("", "downloading tensorflow (592.6MiB)"),
    (" Downloaded tensorflow", "Downloaded tensorflow"),
    ("Prepared 40 packages in 5.00s", "Prepared 40 packages in 5.00s"),
    ("Installed 40 packages in 224ms", "compiling"),
    ("", "compiling"),
]
PIP = [
    ("Collecting numpy", "Collecting numpy"),
    ("  Downloading numpy-2.4.6-cp311-cp311-linux.whl (16.9 MB)",
     "Downloading numpy-2.4.6-cp311-cp311-linux.whl (16.9 MB)"),
    ("Saved ./numpy-2.4.6-cp311-cp311-linux.whl", "Saved ./numpy-2.4.6-cp311-cp311-linux.whl"),
]  # fmt: skip


@pytest.mark.parametrize("output", [UV, PIP], ids=["uv", "pip"])
def test_the_package_that_is_being_downloaded_is_named(output):
    progress = Progress()
    for line, text in output:
        progress.take(line)
        assert progress.text == text
