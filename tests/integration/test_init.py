"""`tfdeploy init` writes a hosts.toml for hosts with a real sshd, or leaves nothing."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from support import command_line, wheels
from support.projects import STUB, environment, without_tensorflow
from support.sshd import Sshd, write_ssh_config
from support.terminal import on_terminal

from tfdeploy.config import AUTO_PORTS, inventory
from tfdeploy.trust import store

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

pytestmark = pytest.mark.slow

TENSORFLOW = """
__version__ = "2.21.0"
class config:
    list_physical_devices = staticmethod(lambda kind: [])
"""
METADATA = "Metadata-Version: 2.1\nName: tensorflow\nVersion: 2.21.0\n"


@dataclass
class Folder:
    """A folder with a script and no hosts.toml, in which `tfdeploy` runs."""

    path: Path
    home: Path
    options: list[str] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)

    def tf(self, *words: str) -> subprocess.CompletedProcess[str]:
        return command_line.run(*words, cwd=self.path, env=self.environment)

    @property
    def environment(self) -> dict[str, str]:
        """Its `python` is the hosts' one: this machine is a host with `--local`."""
        env = environment(self.path)
        path = f"{self.home}/tf/bin:{env['PATH']}"
        return {**env, "HOME": str(self.home), "PATH": path, **self.variables}

    def on_terminal(self, words: list[str], answers: str) -> tuple[int, str]:
        return on_terminal(words, answers, self.path, self.environment)

    def init(self, *words: str, exit_code: int = 0) -> subprocess.CompletedProcess[str]:
        done = self.tf("init", *words, *self.options)
        assert done.returncode == exit_code, done.stdout + done.stderr
        return done

    @property
    def inventory(self) -> inventory.Inventory:
        return inventory.load(self.path / "hosts.toml")


@pytest.fixture(scope="session")
def home(base):
    """The home directory of the hosts, with a Python that has a TensorFlow in it."""
    folder = base / "tf"
    without_tensorflow(folder)
    [packages] = folder.glob("lib/python3*/site-packages")
    for name, file, text in (
        ("tensorflow", "__init__.py", TENSORFLOW),
        ("tensorflow-2.21.0.dist-info", "METADATA", METADATA),
    ):
        (packages / name).mkdir()
        (packages / name / file).write_text(text)
    return base


@pytest.fixture
def jax(home):
    """A Python of the hosts that has a JAX in it."""
    without_tensorflow(home / "other")
    [packages] = home.glob("other/lib/python3*/site-packages")
    (packages / "jax").mkdir()
    (packages / "jax/__init__.py").write_text("__version__ = '0.10.1'")
    yield
    shutil.rmtree(home / "other")


@pytest.fixture
def folder(tmp_path, home, ssh_config):
    path = tmp_path / "project"
    path.mkdir()
    shutil.copy(STUB, path / "train.py")
    return Folder(path, home, ["--ssh-config", str(ssh_config)])


def test_hosts_get_what_they_need_and_nothing_else(folder):
    done = folder.init("one", "two")
    loaded = folder.inventory
    assert [host.name for host in loaded.hosts] == ["one", "two"]
    assert {host.python for host in loaded.hosts} == {"~/tf/bin/python"}
    # One machine stands in for both: they share their home.
    assert [host.shared_fs for host in loaded.hosts] == [True, True]
    assert {host.ports for host in loaded.hosts} == {AUTO_PORTS}
    # SSH reaches them at a loopback address, which no other host could use.
    assert all(not host.address.startswith("127.") for host in loaded.hosts)
    assert (loaded.host("one").ps, loaded.host("two").workers) == (1, 1)
    assert loaded.training.role == "flags"
    assert "train.py defines --job_name and --task_index: ps and workers" in done.stdout
    assert done.stdout.endswith("wrote hosts.toml. Next:\n  tfdeploy check\n  tfdeploy run\n")


@pytest.mark.usefixtures("jax")
def test_a_jax_program_gets_the_python_that_has_jax(folder):
    (folder.path / "train.py").write_text("import jax\njax.distributed.initialize()")
    done = folder.init("one", "two")
    assert re.search(r"JAX *\n.*  0\.10\.1 *\n", done.stdout)
    loaded = folder.inventory
    assert (loaded.training.role, loaded.env) == ("jax", None)
    assert [(host.python, host.workers) for host in loaded.hosts] == [("~/other/bin/python", 1)] * 2


def test_what_init_wrote_needs_no_trust_and_passes_the_check(folder):
    folder.init("--local", "two")
    done = folder.tf("check")
    assert "ready to start 3 tasks on 2 hosts" in done.stdout, done.stdout + done.stderr


def test_no_python_of_an_unpacked_archive_is_run_on_this_machine(folder, tmp_path):
    home, ran = tmp_path / "user", tmp_path / "ran"
    folder.variables["HOME"] = str(home)
    folder.path = home / "demo-main"
    for root in (folder.path / ".venv", folder.path):
        (root / "lib/python3.11/site-packages/tensorflow").mkdir(parents=True)
        (root / "bin").mkdir()
        for name in ("python", "python3"):
            (root / "bin" / name).write_text(f"#!/bin/sh\ntouch {ran}\n")
            (root / "bin" / name).chmod(0o755)
    shutil.copy(STUB, folder.path / "train.py")
    folder.init("--local", "--dry-run")
    assert not ran.exists()


def test_what_a_script_imports_is_looked_for_and_first_imported_by_the_check(folder, tmp_path):
    """The script may be somebody else's: it would choose which code of this machine runs."""
    mark, library = tmp_path / "imported", tmp_path / "lib"
    library.mkdir()
    (library / "marking.py").write_text(f"open({str(mark)!r}, 'w')\n")
    folder.variables["PYTHONPATH"] = str(library)
    (folder.path / "train.py").write_text("import tensorflow, marking\n")
    folder.init("--local")
    assert folder.inventory.env is None  # it was found
    assert not mark.exists()
    folder.tf("check")
    assert mark.exists()


def test_a_script_of_a_package_runs_as_its_module(folder):
    package = folder.path / "pkg"
    package.mkdir()
    (package / "train.py").write_text("import common\n")
    (folder.path / "common.py").write_text("")
    (folder.path / ".git").mkdir()
    inside = Folder(package, folder.home)
    inside.init("--local")
    assert inside.inventory.source.path == ".."
    assert store.untrusted(inside.inventory) == ()
    assert inside.tf("plan").returncode == 0


def test_packages_that_hosts_lack_are_proposed_with_their_versions(folder, tmp_path):
    (folder.path / "train.py").write_text("import tensorflow, helpful, own")
    (folder.path / "own.py").write_text("import very_helpful_too")
    index, empty = tmp_path / "index", tmp_path / "empty"
    for name in ("tensorflow_cpu", "helpful", "very_helpful_too"):
        wheels.make(index, name, "3.1")
    empty.mkdir()
    for links, pin in ((index, "==3.1"), (empty, "")):
        folder.variables = {"UV_FIND_LINKS": str(links), "UV_NO_INDEX": "1", "UV_INDEX": ""}
        done = folder.init("one", "--dry-run")
        env = inventory.parse(done.stdout, folder.path / "hosts.toml").env
        assert env.requirements == (f"tensorflow{pin}", f"helpful{pin}", f"very_helpful_too{pin}")
        assert ("# without versions: " in done.stdout) == (not pin)
        lacking = "no helpful, very_helpful_too on one: tfdeploy installs the packages of [env]"
        assert f"\n# {lacking}\n" in done.stdout
        assert f"{lacking}\n" in done.stderr


def test_keras_2_is_installed_if_hosts_lack_it(folder):
    (folder.path / "train.py").write_text(
        "import tensorflow as tf\ntf.distribute.MultiWorkerMirroredStrategy()\ntf.keras.x.fit()"
    )
    (folder.path / "requirements.txt").write_text("tensorflow==2.21.0\n")
    done = folder.init("one")
    assert "no tf_keras on one: tfdeploy installs the packages of [env]\n" in done.stdout
    assert done.stdout.endswith("Next:\n  tfdeploy push\n  tfdeploy check\n  tfdeploy run\n")
    env = folder.inventory.env
    assert env.setup == ("pip install --no-deps 'tf_keras==2.21.*'",)


def test_a_program_whose_keras_stays_keras_3_is_told_what_to_edit(folder):
    (folder.path / "train.py").write_text(
        "import tensorflow as tf, keras\ntf.distribute.MultiWorkerMirroredStrategy()\nm.fit()"
    )
    done = folder.init("one", "--dry-run")
    assert "note: train.py: fit of Keras 3 fails under MultiWorkerMirroredStrategy" in done.stderr
    assert "TF_USE_LEGACY_KERAS" not in done.stdout


def test_a_dry_run_prints_the_file_and_writes_nothing(folder):
    done = folder.init("one", "--dry-run")
    assert inventory.parse(done.stdout, folder.path / "hosts.toml").hosts[0].name == "one"
    assert "TENSORFLOW" in done.stderr
    assert sorted(path.name for path in folder.path.iterdir()) == ["train.py"]


def test_an_existing_file_is_never_overwritten(folder):
    (folder.path / "hosts.toml").write_text("mine")
    done = folder.init("one", exit_code=2)
    assert "hosts.toml exists already, and is never overwritten\n" in done.stderr
    assert "--hosts other.toml" in done.stderr
    assert (folder.path / "hosts.toml").read_text() == "mine"
    folder.init("one", "--hosts", "other.toml")
    assert (folder.path / "other.toml").exists()


def test_two_names_of_one_machine_are_refused(folder, tmp_path, keys, base, sshds):
    config, entry = tmp_path / "ssh_config", sshds["one"].entry()
    write_ssh_config(config, keys, base / "known_hosts", {"one": entry, "uno": entry})
    folder.options = ["--ssh-config", str(config)]
    done = folder.init("one", "uno", exit_code=2)
    assert "one and uno are one machine (127.0.0.1 port" in done.stderr


@pytest.fixture
def with_bad_hosts(folder, tmp_path, keys, base, sshds):
    """Add hosts to the ssh_config: an unknown name, a closed port, and one that refuses the key."""
    config = tmp_path / "ssh_config"
    hosts = {
        "one": sshds["one"].entry(),
        "closed": {"HostName": "127.0.0.1", "Port": "9"},
        "stranger": sshds["two"].entry(IdentityFile=str(keys.stranger)),
    }
    write_ssh_config(config, keys, base / "known_hosts", hosts)
    folder.options = ["--ssh-config", str(config)]
    return folder


def test_hosts_that_fail_are_all_named_and_nothing_is_written(with_bad_hosts):
    done = with_bad_hosts.init("one", "closed", "stranger", exit_code=1)
    assert "closed: no SSH connection: 127.0.0.1 port 9: Connection refused" in done.stderr
    assert "stranger: it refused every key that was offered" in done.stderr
    assert "nothing was written; --yes writes hosts.toml without these hosts" in done.stderr
    assert not (with_bad_hosts.path / "hosts.toml").exists()


def test_with_yes_hosts_that_fail_stay_as_comments_and_the_exit_code_says_so(with_bad_hosts):
    done = with_bad_hosts.init("one", "closed", "--yes", exit_code=1)
    assert "wrote hosts.toml" in done.stdout
    assert "closed: no SSH connection" in done.stderr
    text = (with_bad_hosts.path / "hosts.toml").read_text()
    assert "# [hosts.closed]\n# no SSH connection: 127.0.0.1 port 9: Connection refused\n" in text
    assert [host.name for host in with_bad_hosts.inventory.hosts] == ["one"]


def test_no_usable_host_writes_nothing_even_with_yes(with_bad_hosts):
    done = with_bad_hosts.init("closed", "--yes", exit_code=1)
    assert "closed: no SSH connection" in done.stderr
    assert not (with_bad_hosts.path / "hosts.toml").exists()


def test_a_new_host_key_is_refused_unless_it_is_accepted(folder, tmp_path, keys, sshds):
    config = tmp_path / "new"
    write_ssh_config(config, keys, tmp_path / "known", {"new": sshds["one"].entry()})
    folder.options = ["--ssh-config", str(config)]
    done = folder.init("new", exit_code=1)
    assert "new: its host key is unknown" in done.stderr
    assert "--accept-new-host-keys" in done.stderr
    folder.init("new", "--accept-new-host-keys")


@pytest.mark.parametrize(
    ("kernel", "programs", "message"),
    [
        ("Darwin", ["rsync"], "odd: it runs Darwin; expected Linux"),
        ("Linux", [], "odd: rsync is not installed\n  install rsync on the host"),
    ],
)
def test_a_host_that_cannot_run_tasks_is_refused(
    folder, tmp_path, keys, base, kernel, programs, message
):
    path = tmp_path / "bin"
    path.mkdir()
    (path / "uname").write_text(f"#!/bin/sh\necho {kernel}\n")
    (path / "uname").chmod(0o755)
    for name in ("sh", "python3", *programs):
        (path / name).symlink_to(shutil.which(name))
    odd, config = Sshd(base, keys, f"SetEnv HOME={base} PATH={path}"), tmp_path / "ssh_config"
    known_hosts = tmp_path / "known_hosts"
    known_hosts.write_text(odd.known_hosts_line)
    write_ssh_config(config, keys, known_hosts, {"odd": odd.entry()})
    folder.options = ["--ssh-config", str(config)]
    try:
        assert message in folder.init("odd", exit_code=1).stderr
    finally:
        odd.stop()


def test_without_hosts_it_asks_at_a_terminal(folder):
    code, output = folder.on_terminal(["init", *folder.options], "one\ny\n")
    assert code == 0, output
    assert [host.name for host in folder.inventory.hosts] == ["one"]


def test_no_host_at_the_question_means_this_machine(folder):
    code, output = folder.on_terminal(["init"], "\ny\n")
    assert code == 0, output
    shown = output.replace("\r\n", "\n").partition("write hosts.toml?")[0]
    assert (folder.path / "hosts.toml").read_text() in shown
    assert [host.name for host in folder.inventory.hosts] == ["this-machine"]


def test_no_at_the_terminal_writes_nothing(folder):
    code, output = folder.on_terminal(["init", "one", *folder.options], "n\n")
    assert code == 1, output
    assert not (folder.path / "hosts.toml").exists()
