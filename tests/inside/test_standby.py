"""A standby process: it imports TensorFlow as the script would, waits, and becomes the task.

Most tests have a small package named tensorflow, which shows with what it is imported.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from separate_machines import environment
from support.host_python import tf_python
from support.waiting import until

# What TensorFlow does when it is imported: it reads the environment and sys.path, prints, sets
# variables. `shared` is a module that a script's folder may have, too.
TENSORFLOW = """
import os, sys
import shared
import keras, tensorflow.sub
print("import with", os.environ.get("FLAGS", "-"), shared.__name__, shared.OF, flush=True)
print("warning", file=sys.stderr, flush=True)
os.environ["SET_BY_IMPORT"] = "1"
"""
SHOW = """
print("then", os.environ.get("FLAGS", "-"), os.environ.get("SET_BY_IMPORT", "-"), flush=True)
"""
IMPORT = "import os, sys\nprint('start', 'tensorflow' in sys.modules, flush=True)\n" + SHOW
IMPORT_AND_SHOW = IMPORT + "import tensorflow\n" + SHOW
WRAP_FINDERS = (
    "sys.meta_path[:] = [type('Wrapper', (), {'find_spec': f.find_spec}) for f in sys.meta_path]"
)
READY = "tfdeploy: this attempt goes on in the standby process, which has imported TensorFlow"


class Task:
    """A task's folder, whose processes are started as its supervisor starts them."""

    def __init__(self, folder: Path, inside: Path) -> None:
        self.folder, self.inside = folder, inside
        self.record = folder / "standby.json"
        package = folder / "site" / "tensorflow"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(TENSORFLOW)
        (package / "sub.py").write_text("")
        (folder / "site" / "keras.py").write_text("import tensorflow")
        (folder / "site" / "shared.py").write_text("OF = 'site'")
        self.python = sys.executable
        self.path = [inside, folder / "site"]
        self.variables: dict[str, str] = {}
        self.processes: list[subprocess.Popen[str]] = []

    def write(self, script: str) -> None:
        (self.folder / "train.py").write_text(script)

    def run(self, *words: str) -> str:
        """Run the script in an ordinary process, and return its output."""
        process = self.start(*words, stdout=subprocess.PIPE)
        output = process.communicate()[0]
        assert process.returncode == 0, output
        return str(output)

    def standby(self, *words: str) -> "StandbyProcess":
        return StandbyProcess(self, words)

    def start_standby(self, pipe: int, output: int, words: tuple[str, ...]):
        wait = str(pipe)
        return self.start(*words, stdout=output, pass_fds=(pipe,), TFDEPLOY_STANDBY_WAIT=wait)

    def start(self, *words, stdout, pass_fds=(), **more):
        more = {"TFDEPLOY_STANDBY": str(self.record), **self.variables, **more}
        process = subprocess.Popen(
            [self.python, *(words or ["train.py"])], cwd=self.folder, text=True, stdout=stdout,
            env=environment(*self.path, **more), stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            start_new_session=True, pass_fds=pass_fds,
        )  # fmt: skip
        self.processes.append(process)
        return process


class StandbyProcess:
    def __init__(self, task: Task, words: tuple[str, ...]) -> None:
        self._log = task.folder / "standby.log"
        read, self._pipe = os.pipe()
        with self._log.open("wb") as output:
            self.process = task.start_standby(read, output.fileno(), words)
        os.close(read)

    @property
    def name(self) -> str:
        return Path(f"/proc/{self.process.pid}/comm").read_text().strip()

    @property
    def output(self) -> str:
        return self._log.read_text()

    def wait_until_it_waits(self) -> "StandbyProcess":
        until(lambda: self.name == "standby", "its name while it waits")
        return self

    def use(self) -> str:
        """Make it the task; return its output when it has ended."""
        os.write(self._pipe, b"!")
        assert self.process.wait() == 0, self.output
        return self.output

    def leave(self) -> int:
        """Close the pipe as the end of the supervisor does; return the exit code."""
        os.close(self._pipe)
        return self.process.wait()


@pytest.fixture
def task(tmp_path, inside):
    created = Task(tmp_path, inside)
    yield created
    for process in created.processes:  # of a test that has failed
        process.kill()
        process.wait()


def test_the_script_finds_what_it_would_find_without_a_standby(task):
    task.write(IMPORT_AND_SHOW)
    cold = task.run()
    assert cold.splitlines() == [
        "start False", "then - -", "import with - shared site", "warning", "then - 1",
    ]  # fmt: skip
    standby = task.standby().wait_until_it_waits()
    assert standby.output == ""
    assert standby.use().splitlines() == [
        "import with - shared site", "warning", READY, "start False", "then - -", "then - 1",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "script",
    [
        "import tensorflow.sub; print(tensorflow.sub.__name__)",
        "from tensorflow.sub import __name__ as n; import sys; print(n, 'keras' in sys.modules)",
        "import keras; print(keras.tensorflow.__name__)",
        "import sys, keras, tensorflow as t; print(keras.tensorflow is t, len(sys.meta_path))",
        "import importlib.util as u; print(u.find_spec('tensorflow').name); import tensorflow",
        "import tensorflow as tf; print(tf.__spec__.loader.__class__, tf.__file__ is None)",
        "import tensorflow as t, sys; print(sys.modules['tensorflow'] is t, len(sys.meta_path))",
        "print(__name__, __file__); import tensorflow",
    ],
)
def test_every_way_to_import_it_gives_the_same(task, script):
    task.write(script)
    cold = [line for line in task.run().splitlines() if line not in _printed_by_import()]
    output = task.standby().use().splitlines()
    assert output[:3] == [*_printed_by_import(), READY]
    assert output[3:] == cold


def test_it_runs_a_module_and_a_program_text_too(task):
    task.write("import tensorflow, sys; print(sys.argv, __spec__.name if __spec__ else None)")
    for words in (("-m", "train", "--steps=3"), ("-c", "import train", "x")):
        last = task.run(*words).splitlines()[-1]
        assert task.standby(*words).use().splitlines()[-1] == last


def _printed_by_import():
    return ["import with - shared site", "warning"]


# What the script changes before it imports TensorFlow


def test_the_variables_that_the_script_sets_first_are_in_force(task):
    add = "import os; os.environ['FLAGS'] = os.environ.get('FLAGS', '') + '+x'\n"
    task.write(add + IMPORT_AND_SHOW)
    task.run()
    output = task.standby().use()
    assert "import with +x shared site" in output
    assert output.splitlines()[-2:] == ["then +x -", "then +x 1"]
    assert "starts again" not in output


def test_a_variable_that_the_script_removes_is_missing(task):
    task.write("import os; os.environ.pop('HOME', None)\n" + IMPORT_AND_SHOW)
    task.run()
    output = task.standby().use()
    assert "starts again" not in output
    assert output.count("import with") == 1


def test_modules_are_found_where_the_script_would_find_them(task):
    (task.folder / "lib").mkdir()
    (task.folder / "lib" / "shared.py").write_text("OF = 'lib'")
    task.write("import os, sys; os.chdir('lib'); sys.path.insert(0, '')\n" + IMPORT_AND_SHOW)
    assert "import with - shared lib" in task.run()
    output = task.standby().use()
    assert "import with - shared lib" in output
    assert "starts again" not in output


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("os.environ['FLAGS'] = str(os.getpid())", "the script has set FLAGS to another value"),
        ("sys.path.append(str(os.getpid()))", "the script has changed sys.path"),
        (
            "os.makedirs(str(os.getpid()), exist_ok=True); os.chdir(str(os.getpid()))",
            "the script has changed its working directory",
        ),
    ],
)
def test_a_script_that_differs_each_time_starts_again(task, change, why):
    task.write(f"import os, sys; {change}; print('begin', os.getpid())\n" + IMPORT_AND_SHOW)
    task.run()
    standby = task.standby()
    output = standby.use()
    pid = standby.process.pid
    assert f"tfdeploy: {why}, so the standby process is of no use: the script starts" in output
    assert output.count(f"begin {pid}") == output.count("import with") == 2
    assert output.splitlines()[-1].endswith(" 1")
    assert json.loads(task.record.read_text())["pid"] == pid  # a standby for it is possible


@pytest.mark.parametrize("first", ["import keras", "from tensorflow.sub import __name__ as name"])
def test_what_is_in_force_at_the_first_import_of_any_part_decides(task, first):
    """What the script changes later came too late for its own import, too."""
    task.write(
        f"import os; os.environ['FLAGS'] = '+x'; {first}; os.environ['LATER'] = 'y'\n"
        + IMPORT_AND_SHOW
    )
    task.run()
    output = task.standby().use()
    assert "import with +x shared site" in output
    assert "starts again" not in output
    task.write(f"import os; os.environ['FLAGS'] = str(os.getpid()); {first}; print('trained')")
    task.run()
    lines = task.standby().use().splitlines()
    assert any("starts again" in line for line in lines)
    assert lines[-1] == "trained"
    assert lines.count("trained") == 1


def test_what_the_script_has_started_ends_before_it_starts_again(task):
    child = "import time; time.sleep(600)"
    task.write(
        "import os, subprocess, sys\n"
        f"child = subprocess.Popen([sys.executable, '-c', {child!r}])\n"
        "print('child', child.pid, flush=True)\n"
        "os.environ['FLAGS'] = str(os.getpid()); import tensorflow; child.kill(); child.wait()"
    )
    task.run()
    output = task.standby().use()
    assert "starts again" in output
    pids = [line.split()[1] for line in output.splitlines() if line.startswith("child ")]
    assert len(pids) == 2
    assert not any(Path(f"/proc/{pid}/cmdline").exists() for pid in pids)


def test_a_child_of_fork_never_runs_the_command(task):
    task.write(
        "import os, sys\n"
        "print('begin', flush=True)\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    os.environ['FLAGS'] = '+child'\n"
        "import tensorflow\n"
        "if not child:\n"
        "    os._exit(0)\n"
        "os.waitpid(child, 0)\n"
        "print('trained')"
    )
    assert task.run().count("begin") == 1
    standby = task.standby()
    output = standby.use()
    assert output.count("begin") == output.count("trained") == 1
    assert json.loads(task.record.read_text())["pid"] == standby.process.pid


@pytest.mark.parametrize(
    "unusual",
    [
        "import pathlib, sys; sys.path.append(pathlib.Path('x'))",
        "import os; os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone')",
        "import sys; " + WRAP_FINDERS,
        "import os; os.environ['ODD'] = os.fsdecode(b'\\xff')",
    ],
)
def test_an_unusual_script_trains_as_without_a_standby(task, unusual):
    task.write(unusual + "\nimport tensorflow; print('trained')")
    assert "trained" in task.run()
    if task.record.exists():
        assert task.standby().use().count("trained") == 1


# Ends without becoming the task


def test_it_ends_with_its_supervisor_and_the_script_never_runs(task):
    task.write(IMPORT_AND_SHOW)
    task.run()
    standby = task.standby()
    assert standby.leave() == 0
    assert standby.output == ""


def test_a_standby_process_without_its_pipe_does_not_run_the_script(task):
    task.write(IMPORT_AND_SHOW)
    task.run()
    process = task.start("train.py", stdout=subprocess.PIPE, TFDEPLOY_STANDBY_WAIT="none")
    assert "start" not in process.communicate()[0]
    assert process.returncode == 1


@pytest.mark.parametrize("record", [None, "", "{}", "[]", '{"settings": {"path": 3}}'])
def test_without_a_record_the_script_does_not_run(task, record):
    task.write(IMPORT_AND_SHOW)
    if record is not None:
        task.record.write_text(record)
    standby = task.standby()
    assert standby.process.wait() == 1
    assert standby.output.startswith("tfdeploy: there is no standby process: ")
    assert "start" not in standby.output


def test_it_ends_if_tensorflow_cannot_be_imported(task):
    task.write(IMPORT_AND_SHOW)
    task.run()
    (task.folder / "site" / "shared.py").unlink()
    standby = task.standby()
    assert standby.process.wait() == 1
    assert "ModuleNotFoundError" in standby.output
    assert "start" not in standby.output


def test_only_the_tasks_own_process_writes_the_record_and_waits(task):
    child = "import tensorflow, os; print('child', 'TFDEPLOY_STANDBY_WAIT' in os.environ)"
    start = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {child!r}])\n"
    task.write(start)
    assert "child False" in task.run()
    assert not task.record.exists()
    task.write(IMPORT_AND_SHOW + start)
    task.run()
    assert "child False" in task.standby().use()


def test_the_record_is_only_for_this_user(task):
    task.write("import os; os.environ['TOKEN'] = 's3cret'; import tensorflow")
    task.run()
    assert "s3cret" in task.record.read_text()
    assert task.record.stat().st_mode & 0o777 == 0o600


def test_the_kernel_ends_it_first_only_while_it_waits(task):
    task.write("import tensorflow; print(open('/proc/self/oom_score_adj').read())")
    usual = task.run().split()[-1]
    standby = task.standby().wait_until_it_waits()
    assert Path(f"/proc/{standby.process.pid}/oom_score_adj").read_text().strip() == "1000"
    assert standby.use().split()[-1] == usual


def test_it_has_its_usual_name_again_when_it_is_the_task(task):
    task.write("import tensorflow; print(ascii(open('/proc/self/comm').read()))")
    usual = task.run().splitlines()[-1]
    assert task.standby().wait_until_it_waits().use().splitlines()[-1] == usual


def test_the_handlers_of_the_script_get_each_message_once(task):
    package = task.folder / "site" / "tensorflow" / "__init__.py"
    package.write_text(
        "import logging\n"
        "if not logging.getLogger().handlers:\n"
        "    logging.getLogger('tensorflow').addHandler(logging.StreamHandler())\n"
    )
    task.write(
        "import logging, sys; logging.basicConfig()\n"
        "own = logging.StreamHandler(sys.stdout)\n"
        "logging.getLogger('tensorflow').addHandler(own); import tensorflow\n"
        "logging.getLogger('tensorflow').warning('message')"
    )
    once_each = 2  # by the root's handler, and by the script's own
    assert task.run().count("message") == task.standby().use().count("message") == once_each


@pytest.mark.slow
def test_the_real_tensorflow_trains_and_its_patches_work(task):
    """A Keras script that sets variables first, with a hook of a chief."""
    task.python, task.path = tf_python(), [task.inside]
    task.variables = {"TFDEPLOY_SAVES": str(task.folder / "saves"), "TFDEPLOY_END_AT_EXIT": "1"}
    task.write(
        "import os; os.environ['TF_CPP_MIN_LOG_LEVEL'] = '3'\n"
        "import keras, tensorflow as tf, sys\n"
        "model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])\n"
        "model.compile('sgd', 'mse')\n"
        "model.fit(tf.ones((4, 2)), tf.ones((4, 1)), verbose=0)\n"
        "tf.train.Checkpoint(model).save(sys.argv[1])\n"
        "print(tf.__version__, model.count_params(), tf.reduce_sum(tf.ones(3)).numpy())\n"
    )
    saves, target = task.folder / "saves", str(task.folder / "elsewhere" / "model")
    cold = task.run("train.py", target).splitlines()[-1]
    saved = saves.read_text()
    assert target.rpartition("/")[0] in saved
    saves.unlink()
    output = task.standby("train.py", target).wait_until_it_waits().use()
    assert output.splitlines()[-1] == cold
    assert saves.read_text() == saved
    assert "starts again" not in output
    assert READY in output
