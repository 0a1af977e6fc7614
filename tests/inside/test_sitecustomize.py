"""Every Python of a task runs tfdeploy's sitecustomize, which must not change anything else."""

import ast
import subprocess
import sys

import pytest
from separate_machines import INSIDE, environment

DEVICE = "/job:worker/task:0/device:CPU:0"
PRINT_LOADED = """
import sys
ours = [f for f in sys.meta_path if type(f).__name__ == "FrameworkHook"]
loaded = {"tensorflow", "tfdeploy_checkpoints", "tfdeploy_stop"} & set(sys.modules)
print(len(ours), sorted(loaded), sys.modules["sitecustomize"].__file__)
"""


def python(code, *path, device=DEVICE, **more):
    return subprocess.run(
        [sys.executable, "-c", code],
        env=environment(*path, device=device, **more),
        capture_output=True,
        text=True,
    )


@pytest.fixture
def package(tmp_path):
    """A function that writes a module and returns its directory."""

    def write(name, text):
        file = tmp_path / name / f"{name}.py"
        file.parent.mkdir()
        file.write_text(text)
        return file.parent

    return write


@pytest.fixture
def loaded(inside):
    """Return the sitecustomize that a process has in the end: Debian's Python has one of its own,
    which ours hides, runs, and gives its place."""
    code = "import sys; print(getattr(sys.modules.get('sitecustomize'), '__file__', ''))"
    return python(code).stdout.strip() or f"{inside}/sitecustomize.py"


@pytest.mark.parametrize(("device", "hooks"), [(DEVICE, 1), (None, 0), ("", 0)])
def test_a_process_without_tensorflow_loads_no_patch(inside, loaded, device, hooks):
    done = python(PRINT_LOADED, inside, device=device)
    assert (done.stdout, done.stderr) == (f"{hooks} [] {loaded}\n", "")


@pytest.mark.parametrize(("value", "hooks"), [("1", 1), ("", 0)])
def test_save_on_stop_alone_installs_the_hook(inside, loaded, value, hooks):
    done = python(PRINT_LOADED, inside, device=None, TFDEPLOY_SAVE_ON_STOP=value)
    assert (done.stdout, done.stderr) == (f"{hooks} [] {loaded}\n", "")


@pytest.mark.parametrize("device", [DEVICE, None])
def test_the_hidden_sitecustomize_runs_once_and_replaces_ours(inside, package, device):
    hidden = package("sitecustomize", "import sys\nprint('hidden', __name__, sys.path[-1] != '')\n")
    done = python("import sitecustomize; print(sitecustomize.__file__)", inside, hidden)
    assert done.stdout == f"hidden sitecustomize True\n{hidden}/sitecustomize.py\n"
    assert done.stderr == ""


def test_two_versions_of_tfdeploy_run_the_hidden_sitecustomize_once(inside, package):
    hidden = package("sitecustomize", "print('hidden')\n")
    done = python(PRINT_LOADED, inside, INSIDE, inside, INSIDE, hidden)
    output = f"hidden\n1 [] {hidden}/sitecustomize.py\n"
    assert (done.stdout, done.stderr) == (output, "")


def test_an_error_of_the_hidden_sitecustomize_is_reported_as_by_python(inside, package):
    hidden = package("sitecustomize", "raise ValueError('not ours')\n")
    ours, alone = (python("print('continues')", *path) for path in ((inside, hidden), (hidden,)))
    assert "ValueError: not ours" in ours.stderr
    assert (ours.stdout, ours.stderr) == (alone.stdout, alone.stderr)
    assert ours.stdout == "continues\n"


def test_a_tensorflow_that_can_not_be_patched_works_after_one_line(inside, package):
    stub = package("tensorflow", "answer = 42\n")
    code = (
        "import tensorflow as t; print(t.answer, type(t.__loader__).__name__, vars(t.__loader__))"
    )
    ours, alone = (python(code, *path) for path in ((inside, stub), (stub,)))
    assert ours.stdout == alone.stdout
    assert ours.stderr == (
        "tfdeploy: checkpoints stay where TensorFlow puts them: "
        "ModuleNotFoundError: No module named 'tensorflow.python'; 'tensorflow' is not a package\n"
    )


def test_a_failed_patch_does_not_prevent_the_next(inside, package):
    stub = package("tensorflow", "")
    done = python("import tensorflow", inside, stub, TFDEPLOY_SAVE_ON_STOP="1")
    first, second = done.stderr.splitlines()
    assert first.startswith("tfdeploy: checkpoints stay where TensorFlow puts them: ModuleNotFound")
    assert second.startswith("tfdeploy: a stop saves no last checkpoint: ModuleNotFoundError: ")


def test_a_failing_or_missing_tensorflow_fails_as_without_the_hook(inside, package):
    stub = package("tensorflow", "raise RuntimeError('no such CPU')\n")
    ours, alone = (python("import tensorflow", *path) for path in ((inside, stub), (stub,)))
    assert "no such CPU" in alone.stderr
    assert ours.stderr.splitlines()[-1] == alone.stderr.splitlines()[-1]
    assert "tfdeploy: " not in ours.stderr
    missing = python("import sys; sys.path = sys.path[:1]; import tensorflow", inside)
    assert missing.stderr.endswith("ModuleNotFoundError: No module named 'tensorflow'\n")


def test_finding_tensorflow_does_not_import_it(inside, package):
    stub = package("tensorflow", "print('imported')\n")
    code = "import importlib.util as u; print(u.find_spec('tensorflow').origin)"
    done = python(code, inside, stub)
    assert (done.stdout, done.stderr) == (f"{stub}/tensorflow.py\n", "")


@pytest.mark.parametrize("source", sorted(INSIDE.glob("*.py")), ids=lambda source: source.name)
def test_the_code_is_valid_in_python_3_8(source):
    tree = ast.parse(source.read_text(), feature_version=(3, 8))
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        for name in (
            [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else []
        )
    }
    neighbours = {neighbour.stem for neighbour in INSIDE.glob("tfdeploy_*.py")}
    assert imported <= sys.stdlib_module_names | {"tensorflow"} | neighbours
