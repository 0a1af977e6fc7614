"""A resume continues what was started, and says which edits of hosts.toml it does not use."""

from __future__ import annotations

import json
import re

import pytest


@pytest.fixture
def project(local):
    """A run that has stopped, of a hosts.toml that sets a variable and was started with words."""
    training = {"env": {"RATE": "one", "API_TOKEN": "old-secret"}}
    project = local.pushed("--hold", "--dump", training=training)
    project.ok("start", "--env", "MODE=fast", "--with", "workers=1", "--", "word")
    project.ok("stop")
    return project


def variable(project, name):
    return json.loads((project.work("worker:0") / "dump.json").read_text())["env"][name]


def test_a_resume_names_the_keys_that_were_edited_and_shows_no_value(project):
    assert "edited" not in project.tf("resume").stderr
    project.ok("stop")
    project.training["env"] = {"RATE": "two", "API_TOKEN": "new-secret", "NEW": "1"}
    project.training["max_duration_s"] = 3600
    project.hosts["here"]["gpus_shared"] = True
    project.write()
    done = project.tf("resume")
    keys = "hosts.here.gpus_shared, training.env.API_TOKEN, training.env.NEW, training.env.RATE"
    assert done.returncode == 0
    assert f"hosts.toml was edited since run {project.runs[-1]} started" in done.stderr
    assert f"does not use the edits: {keys}, training.max_duration_s; to use them" in done.stderr
    assert "secret" not in done.stderr + done.stdout
    assert variable(project, "RATE") == "one"
    assert "edited" in project.tf("scale", "workers=2").stderr


def test_an_edit_of_the_record_is_used_as_the_note_says(project):
    project.training["env"] = {"RATE": "two", "API_TOKEN": "old-secret"}
    project.write()
    file = re.search(r"edit (\S+), too", project.tf("resume").stderr)[1]
    project.ok("stop")
    record = project.run_folder / "hosts.toml"
    assert file == str(record)
    record.write_text(record.read_text().replace('"one"', '"two"'))
    done = project.tf("resume")
    assert (done.returncode, "training.env.RATE" in done.stderr) == (0, False), done.stderr
    assert (variable(project, "RATE"), variable(project, "MODE")) == ("two", "fast")


def test_a_hosts_file_that_is_gone_or_invalid_does_not_prevent_a_resume(project):
    (project.folder / "hosts.toml").write_text("[training")
    assert project.tf("resume").returncode == 0
