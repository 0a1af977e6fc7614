"""Several live runs with one name, and two folders with one project: each is said, and no command
guesses which run is meant."""

from __future__ import annotations

import json

import pytest
from support.projects import environment
from support.terminal import on_terminal

import tfdeploy
from tfdeploy.errors import RunError

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


def test_a_name_of_several_live_runs_is_asked_for(project, monkeypatch):
    project.ok("start", "--name", "wide", "--", "--seed=1")
    done = project.tf("start", "--name", "wide", "--json")
    old, new = project.runs
    warning = f'a live run is named "wide" already: {old}'
    assert [note["message"] for note in json.loads(done.stdout)["notes"]] == [warning]
    assert warning in done.stderr
    for command in ("stop", "status"):
        refused = project.tf(command, "wide")
        assert refused.returncode == 2
        assert refused.stderr == (
            'error: 2 live runs are named "wide":\n'
            f"  1  {new}  1 task on here\n"
            f"  2  {old}  1 task on here  -- --seed=1\n"
            f"  type the id of one instead of the name, such as {new}\n"
        )
    monkeypatch.chdir(project.folder)
    with pytest.raises(RunError, match="2 live runs"):
        tfdeploy.Run.from_id("wide")
    env = environment(project.folder)
    code, printed = on_terminal(["stop", "wide"], "7\n1\n", project.folder, env)
    assert code == 0
    assert 'found "7"; expected a number or an id of the list' in printed
    assert f"all processes of run {new} have exited" in printed
    # Now the older one alone is meant, as it is live; and when none is, the newest.
    assert old in project.ok("stop", "wide")
    assert new in project.ok("stop", "wide")
    assert "named" not in project.tf("start", "--name", "wide").stderr


def test_a_second_folder_with_the_same_project_is_said_at_the_start(project, local):
    second = local.project(hosts=project.hosts, training=project.training, name=project.name)
    (second.folder / "sleep.py").write_text(PROGRAM)
    said = [each.tf("start").stderr for each in (project, second, second, project)]
    assert [each.count(f'starts runs of a project "{project.name}"') for each in said] == [
        0, 1, 0, 1,
    ]  # fmt: skip
    assert f"{project.folder} starts runs of" in said[1]
    assert f"{second.folder} starts runs of" in said[3]
