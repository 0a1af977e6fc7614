"""Two folders with one project are said at the start."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.slow

PROGRAM = "import time\ntime.sleep(600)\n"


@pytest.fixture
def project(local):
    [[name, host]] = local.hosts().items()
    host |= {"ps": 0, "workers": 1, "ports": "auto"}
    training = {"command": "python sleep.py", "role_args": [], "ready": "process"}
    made = local.project(hosts={name: host}, training={**training, "stop_grace_s": 0.1})
    (made.folder / "sleep.py").write_text(PROGRAM)
    made.ok("push")
    return made


def test_a_second_folder_with_the_same_project_is_said_at_the_start(project, local):
    second = local.project(hosts=project.hosts, training=project.training, name=project.name)
    (second.folder / "sleep.py").write_text(PROGRAM)
    said = [each.tf("start").stderr for each in (project, second, second, project)]
    assert [each.count(f'starts runs of a project "{project.name}"') for each in said] == [
        0, 1, 0, 1,
    ]  # fmt: skip
    assert f"{project.folder} starts runs of" in said[1]
    assert f"{second.folder} starts runs of" in said[3]
