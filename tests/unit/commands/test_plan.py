"""Which files of the source are part of a release."""

from __future__ import annotations

from support.builders import hosts_toml, put

from tfdeploy.commands.plan import source_release
from tfdeploy.config import inventory


def test_a_notebook_that_a_command_runs_is_pushed_unless_hosts_toml_leaves_it_out(tmp_path):
    for name in ("train.ipynb", "lab/eval.ipynb", "other.ipynb", "lib.py"):
        put(tmp_path, name)
    train = '[training.worker]\ncommand = ["papermill", "./train.ipynb", "/tmp/out.ipynb"]'
    evaluate = '[training.evaluator]\ncommand = ["jupyter", "execute", "lab/eval.ipynb"]'

    def pushed(top=""):
        put(tmp_path, "hosts.toml", hosts_toml(training=f"{train}\n{evaluate}", top=top))
        return {*source_release(inventory.load(tmp_path / "hosts.toml")).manifest}

    assert pushed() == {"lib.py", "train.ipynb", "lab/eval.ipynb"}
    assert pushed('source.exclude = ["lab/"]') == {"lib.py", "train.ipynb"}
