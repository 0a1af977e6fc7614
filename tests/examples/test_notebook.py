"""examples/notebook.ipynb, in a kernel as Jupyter starts it: an event loop runs in it."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import nbclient
import nbformat
import pytest
from support import warm
from support.host_python import tf_python
from support.projects import environment
from support.recipes import EXAMPLES

NOTEBOOK = EXAMPLES / "notebook.ipynb"
TESTS = Path(__file__).parents[1]


def test_the_notebook_is_stored_without_outputs():
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    assert [
        cell["outputs"] for cell in cells if cell["cell_type"] == "code" and cell["outputs"]
    ] == []


# In place of the example's script, which other tests train: a notebook shows nothing of TensorFlow.
STANDS_IN = f"""
import runpy, sys, time
sys.path[:0] = [{str(TESTS)!r}]
from support import events
words = [word for word in sys.argv[1:] if not word.startswith(("--checkpoint_dir", "--learning"))]
sys.argv[1:] = [*words, "--pace=0.01"]
trained = runpy.run_path({str(TESTS / "support/scripts/train_stub.py")!r})
if trained["CHIEF"]:
    records = [events.record(events.scalar_event(n, time.time(), loss=1 / n)) for n in (1, 200)]
    events.write(trained["CHECKPOINTS"], events.version(), *records)
print("stopped at step", trained["flags"].steps)
"""


@pytest.mark.slow
def test_every_cell_of_the_notebook_runs(tmp_path):
    folder = tmp_path / "examples"
    shutil.copytree(EXAMPLES / "digits", folder / "digits", ignore=shutil.ignore_patterns("runs"))
    script = folder / "digits" / "train.py"
    usage = warm.run(script, "--help", cwd=folder).stdout
    assert all(flag in usage for flag in ("--steps", "--learning_rate", "--checkpoint_dir"))
    script.write_text(STANDS_IN)
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
    # On a slow machine, the workers of this short training have ended already.
    assert re.findall(r"^(\w+:\d) (?:READY|SUCCEEDED) ", status, re.M) == [
        "ps:0", "worker:0", "worker:1",
    ]  # fmt: skip
    assert "\nstopped at step " in log
    assert finished.startswith("succeeded ['model.ckpt-")
    rates = [line.partition(":")[0] for line in compared.splitlines()]
    assert rates == ["learning rate 0.001", "learning rate 0.01"]


def cells(notebook):
    return [cell for cell in notebook.cells if cell["cell_type"] == "code"]


def printed(cell):
    return "".join(each["text"] for each in cell["outputs"] if each["output_type"] == "stream")


CONCEPTS = sorted(EXAMPLES.glob("notebooks/*.ipynb"))
PRINTED = {
    "servers": [
        "['worker'] 2",
        "22.0 /job:worker/task:1",
        str([f"/job:worker/replica:0/task:{index}/device:CPU:0" for index in range(2)]),
        "worker 0 counts to 1",
        "worker 1 counts to 2",
    ],
    "parameter_server": [
        "slope on /job:ps/task:0",
        "offset on /job:ps/task:0",
        "global_step on /job:ps/task:0",
        "Mean on /job:worker/task:0",
        "y = 3.00 x + -1.00",
        "the fast worker made more steps: True",
    ],
    "local_then_global": [
        "global: ['shared']",
        "local:  ['local', 'fetched']",
        "window 0: shared [ 0.67 -0.67]",
        "window 1: shared [ 0.89 -0.89]",
        "window 2: shared [ 0.96 -0.96]",
        "window 3: shared [ 0.99 -0.99]",
    ],
}


@pytest.mark.parametrize("notebook", CONCEPTS, ids=lambda path: path.stem)
def test_a_notebook_is_valid_and_stored_without_outputs(notebook):
    read = nbformat.read(notebook, as_version=4)
    nbformat.validate(read)
    assert [cell.outputs for cell in cells(read) if cell.outputs] == []


@pytest.mark.slow
@pytest.mark.parametrize("notebook", CONCEPTS, ids=lambda path: path.stem)
def test_the_cells_of_a_notebook_print_what_they_teach(notebook, tmp_path):
    # In one process with TensorFlow already imported: a kernel would import it for each notebook.
    code = "\n".join(cell.source for cell in cells(nbformat.read(notebook, as_version=4)))
    done = warm.run("-c", code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == PRINTED[notebook.stem]
