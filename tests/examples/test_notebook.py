"""examples/notebook.ipynb, in a kernel as Jupyter starts it: an event loop runs in it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import nbclient
import nbformat
import pytest
from host_python import tf_python
from integration.projects import environment

from examples.recipes import EXAMPLES

NOTEBOOK = EXAMPLES / "notebook.ipynb"


def test_the_notebook_is_stored_without_outputs():
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    assert [
        cell["outputs"] for cell in cells if cell["cell_type"] == "code" and cell["outputs"]
    ] == []


@pytest.mark.slow
def test_every_cell_of_the_notebook_runs(tmp_path):
    folder = tmp_path / "examples"
    shutil.copytree(EXAMPLES / "digits", folder / "digits", ignore=shutil.ignore_patterns("runs"))
    env = environment(folder)
    env["PATH"] = f"{Path(tf_python()).parent}:{env['PATH']}"
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    client = nbclient.NotebookClient(
        notebook, timeout=900, resources={"metadata": {"path": str(folder)}}
    )
    client.execute(env=env)
    plan, started, status, log, finished, several, compared = map(printed, cells(notebook))
    assert plan == "ps:0 on this-machine\nworker:0 on this-machine\nworker:1 on this-machine\n"
    assert (started, several) == ("", "")
    assert status.count("READY") >= 3
    assert "\nstopped at step " in log
    assert finished.startswith("succeeded ['model.ckpt-")
    rates = [line.partition(":")[0] for line in compared.splitlines()]
    assert rates == ["learning rate 0.001", "learning rate 0.01"]


def cells(notebook):
    return [cell for cell in notebook.cells if cell["cell_type"] == "code"]


def printed(cell):
    return "".join(each["text"] for each in cell["outputs"] if each["output_type"] == "stream")
