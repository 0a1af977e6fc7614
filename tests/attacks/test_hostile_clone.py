"""Somebody else's repository, in which a user types the commands that only look."""

from __future__ import annotations

import http.server
import json
import os
import pty
import subprocess
import sys
import threading
from typing import ClassVar

import pytest
from support.builders import run_json
from support.command_line import REAL
from support.trusting import trust

from tfdeploy.cli.options import load_inventory, load_to_plan
from tfdeploy.environments import wheelhouse
from tfdeploy.environments.spec import EnvironmentSpec
from tfdeploy.errors import NotTrusted

LOCAL = '[hosts.here]\ntransport = "local"\nworkers = 1\n'
LOOKS = (
    *("check", "status", "logs", "runs", "collect", "stop", "fetch worker:0 x", "hosts", "queue"),
    *("push", "start", "run", "exec worker:0 -- true", "ssh worker:0", "resume", "scale ps=1"),
    *("prune", "watch", "attach", "sweep --workers 1", "trials --start"),
)


class Clone:
    """A repository in the user's home. `ran` is a file that only a program of the clone writes."""

    def __init__(self, home):
        self.home, self.folder, self.ran = home, home / "clone", home / "ran"
        (self.folder / ".git").mkdir(parents=True)
        (self.folder / "train.py").write_text("pass\n")
        evil = self.folder / "evil.sh"
        evil.write_text(f"#!/bin/sh\ntouch {self.ran}\n")
        evil.chmod(0o755)

    def write(self, hosts, top=""):
        text = f'project = "p"\n{top}\n[training]\ncommand = "python train.py"\n{hosts}'
        (self.folder / "hosts.toml").write_text(text)

    def environment(self):
        kept = {key: value for key, value in os.environ.items() if not key.startswith("XDG_")}
        return {**kept, "HOME": str(self.home), "COLUMNS": "200"}

    def tf(self, command):
        return subprocess.run(
            [*REAL, *command.split()], cwd=self.folder,
            env=self.environment(), capture_output=True, text=True, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def refusal(self, command):
        """Return what a command says that exits with 2 and has run nothing."""
        done = self.tf(command)
        assert (done.returncode, done.stdout) == (2, ""), done.stdout + done.stderr
        assert not self.ran.exists()
        return done.stderr

    def distrust(self):
        """Return why hosts.toml is not trusted. Each command that contacts a host loads it in this
        way."""
        with pytest.raises(NotTrusted) as refused:
            load_inventory(self.folder / "hosts.toml")
        assert not self.ran.exists()
        return str(refused.value)

    def on_terminal(self, command, answer):
        """Run a command with a terminal, on which the user types `answer`; return the exit code and
        what the terminal shows."""
        main_end, terminal = pty.openpty()
        process = subprocess.Popen(
            [*REAL, *command.split()], cwd=self.folder,
            env=self.environment(), stdin=terminal, stdout=terminal, stderr=terminal,
            start_new_session=True,
        )  # fmt: skip
        os.close(terminal)
        os.write(main_end, f"{answer}\n".encode())
        shown = b""
        try:
            while chunk := os.read(main_end, 65536):
                shown += chunk
        except OSError:  # the process has closed the terminal
            pass
        os.close(main_end)
        return process.wait(), shown.decode()


def write_record(clone, run_id="20260101-000000-aaaa", **values):
    """Write the record of a run as a repository may contain it."""
    folder = clone.folder / "runs" / run_id
    folder.mkdir(parents=True)
    text = (
        (clone.folder / "hosts.toml")
        .read_text()
        .replace("workers", "ports = [2222, 2223]\nworkers")
    )
    (folder / "hosts.toml").write_text(text + 'address = "127.0.0.1"\n')
    (folder / "run.json").write_text(json.dumps(run_json(**values)))


@pytest.fixture
def clone(home, monkeypatch):
    monkeypatch.delenv("XDG_CONFIG_HOME")
    return Clone(home)


@pytest.mark.parametrize(
    ("keyword", "ssh_config"),
    [
        ("Match exec", "Match exec \"touch {ran}\"\n  User x\n"),
        ("ProxyCommand", "Host *\n  ProxyCommand touch {ran}\n"),
        ("PROXYCOMMAND", "Host *\n\tPROXYCOMMAND=touch {ran}\n"),
        ('"proxycommand"', 'Host *\n"proxycommand" touch\n'),
        ('User"KnownHostsFile"', 'User"KnownHostsFile" ~/.bashrc\n'),
        ("Match exec", 'Match host * e"xec" "touch {ran}"\n'),
        ("UserKnownHostsFile", "UserKnownHostsFile '~/.ssh/known_hosts ~/.bashrc'\n"),
        ("KnownHostsCommand", "KnownHostsCommand /usr/bin/touch {ran}\n"),
        ("PKCS11Provider", "PKCS11Provider ./evil.so\n"),
        ("IdentityFile", "IdentityFile pkcs11:?module-path=/tmp/evil.so\n"),
        ("IdentityFile", 'IdentityFile "PKCS11:id=%01?module-path=evil.so"\n'),
        ("Include", "Include ./more\n"),
        ("UserKnownHostsFile", "UserKnownHostsFile ~/.bashrc\n"),
        ("NewKeyword", "NewKeyword x\n"),
        ("StrictHostKeyChecking", "StrictHostKeyChecking no\n"),
        ("stricthostkeychecking", "Host *\n stricthostkeychecking = accept-new\n"),
        ("VerifyHostKeyDNS", "VerifyHostKeyDNS yes\n"),
        ("ProxyJump", "ProxyJump a$IFS-oProxyCommand=./evil.sh@bastion\n"),
        ("ProxyJump", "ProxyJump -oProxyCommand=./evil.sh\n"),
        ("User", "User a`./evil.sh`\n"),
        ("HostKeyAlias", 'HostKeyAlias "touch /tmp/x"\n'),
        ("UserKnownHostsFile", "UserKnownHostsFile ~/.config/fish/conf.d/known_hosts.fish\n"),
        ("an Include whose files can't be found", "Include ~nosuchuser/x\n"),
        ("an Include whose files can't be found", "Include '/tmp/x'\n"),
        ("an Include whose files can't be found", "Include /a\0/*\n"),
        ("an Include whose files can't be found", '"Include" /tmp/x\n'),
        ("an Include whose files can't be found", "#" * 1_000_001),
    ],
)  # fmt: skip
def test_an_ssh_config_that_can_run_programs_needs_trust(clone, keyword, ssh_config):
    clone.write("[hosts.a]\nworkers = 1\n", 'ssh_config = "ssh.conf"')
    (clone.folder / "ssh.conf").write_text(ssh_config.format(ran=clone.ran))
    said = clone.distrust()
    assert 'ssh_config = "ssh.conf" has ' in said
    assert keyword in said
    assert "tfdeploy trust" in said


def test_an_ssh_config_that_names_only_hosts_needs_no_trust_for_a_plan(clone):
    clone.write("[hosts.a]\nworkers = 1\n", 'ssh_config = "ssh.conf"')
    (clone.folder / "ssh.conf").write_text(
        "# our machines\nHost a\n  HostName 127.0.0.9\n\tUser=ada\n  Port 22\n"
        "  IdentityFile ~/.ssh/work\n  UserKnownHostsFile ./known_hosts.1\n"
        "Match host b\n  ProxyJump c\n"
    )
    assert "127.0.0.9" in clone.tf("plan").stdout
    assert 'ssh_config = "ssh.conf" decides how hosts are reached' in clone.distrust()


@pytest.mark.parametrize("named", ["known_hosts", "%d/clone/known_hosts", "~/clone/linked"])
@pytest.mark.parametrize("keyword", ["UserKnownHostsFile", "GlobalKnownHostsFile"])
def test_a_trusted_host_is_not_led_elsewhere_by_an_ssh_config(clone, keyword, named, monkeypatch):
    """A later version of a repository has another address for a host, and its key."""
    monkeypatch.chdir(clone.folder)
    clone.write('[hosts."gpu-01.lab"]\nworkers = 1\n', 'ssh_config = "ssh.conf"')
    config, keys = clone.folder / "ssh.conf", clone.folder / "known_hosts"
    config.write_text(f"{keyword} {named}\n")
    keys.write_text("gpu-01.lab ssh-ed25519 A\n")
    (clone.folder / "linked").symlink_to("known_hosts")
    trust(clone.folder / "hosts.toml")
    load_inventory(clone.folder / "hosts.toml")
    keys.write_text("gpu-01.lab ssh-ed25519 B\n")
    assert "(its files have changed)" in clone.distrust()
    trust(clone.folder / "hosts.toml")
    moved = "Host gpu-01.lab\n HostName 127.0.0.1\n Port 23022\n"
    config.write_text(f"{keyword} {named}\n{moved}")
    assert "(its files have changed)" in clone.distrust()


@pytest.mark.parametrize("command", LOOKS)
def test_no_command_that_looks_runs_a_program_of_the_clone(clone, command):
    clone.write(f'{LOCAL}python = "{clone.folder}/evil.sh"\n')
    if command not in ("check", "runs", "hosts", "start", "run", "push"):
        write_record(clone)
    said = clone.refusal(command)
    assert f'hosts.here.python = "{clone.folder}/evil.sh" runs there' in said
    assert 'training.command = "python train.py" runs on its hosts' in said


def test_a_plan_shows_what_would_run_and_runs_nothing(clone):
    clone.write(f'{LOCAL}python = "{clone.folder}/evil.sh"\n')
    planned = clone.tf("plan -- --lr 0.1")
    assert (planned.returncode, clone.ran.exists()) == (0, False), planned.stderr
    assert "evil.sh train.py" in planned.stdout
    assert "hosts.here.python" in clone.distrust()  # the words have made it no more trusted


HERE = {
    "local": 'transport = "local"',
    "hostname": 'hostname = "localhost"',
    "address": 'hostname = "127.0.0.1"',
    "another name": 'hostname = "my-gpu"',  # by ssh_config, or by /etc/hosts
    "port": 'hostname = "far.example.org"\nport = 2200',
    "jump": 'hostname = "far.example.org"\nproxy_jump = "localhost"',
}


@pytest.mark.parametrize("host", HERE.values(), ids=HERE)
def test_what_runs_needs_trust_however_its_host_is_reached(clone, host):
    clone.write(
        'secrets = ["AWS_SECRET_ACCESS_KEY"]\nimports = ["antigravity"]\n'
        f'[env]\nrequirements = ["x"]\nsetup = ["touch {clone.ran}"]\n'
        '[notify]\non_end = "./evil.sh"\non_failure = "https://h.example/token"\n'
        f'[hosts.a]\n{host}\nworkers = 1\npython = "~/clone/evil.sh"\n'
        'directory = "~/clone/x"\nenv.LD_PRELOAD = "./evil.so"\n',
    )
    said = clone.distrust()
    for line in (
        "hosts.a = ",
        'hosts.a.python = "~/clone/evil.sh" runs there',
        'hosts.a.directory = "~/clone/x" can have programs',
        'hosts.a.env.LD_PRELOAD = "./evil.so" can change',
        'training.command = "python train.py" runs on its hosts',
        'training.imports = "antigravity" is imported on its hosts',
        'training.secrets = "AWS_SECRET_ACCESS_KEY" is sent',
        f'env.setup = "touch {clone.ran}" runs on its hosts',
        'notify.on_end = "./evil.sh" gets',
        'notify.on_failure = "https://h.example/***" gets',
    ):
        assert line in said, line


@pytest.mark.parametrize(
    ("keys", "shown"),
    [
        ('command = ["python", "-sW", "train.py", "-c", "EVIL"]', "-sW train.py -c EVIL"),
        ('command = "python"\nrole_args = ["-c", "EVIL"]', "python -c EVIL"),
        ('command = ["python", "a/../../x.py", "EVIL"]', "python a/../../x.py EVIL"),
        ('command = ["python", "-m", "timeit", "EVIL"]', "python -m timeit EVIL"),
        ('command = ["bash", "-c", "EVIL", "{python}", "bash"]', "bash -c EVIL '{python}' bash"),
        ('command = ["bash", "-oe", "pipefail", "-c", "EVIL"]', "bash -oe pipefail -c EVIL"),
        ('command = ["bash", "-c", "{checkpoint_dir}"]\ncheckpoint_dir = "EVIL"', "bash -c EVIL"),
        ('command = "torchrun --log-dir train.py --no-python sh -c EVIL"', "sh -c EVIL"),
        ('command = "python train.py"\n[training.worker]\ncommand = "sh -c EVIL"', "sh -c EVIL"),
        ('command = "sh -c {x}"\n[trials]\nparams = {x = ["EVIL"]}', "EVIL"),
        (
            'command = "python train.py"\n[notify]\n'
            'on_end = ["bash", "-c", "echo https://example.org/;EVIL"]',
            "https://example.org/;EVIL",
        ),
    ],
)
def test_all_of_a_command_is_shown_that_may_run_something_else_than_the_source(clone, keys, shown):
    text = f'project = "p"\n[training]\n{keys}\n{LOCAL}'
    (clone.folder / "hosts.toml").write_text(text)
    assert shown in clone.distrust()
    clone.tf("trust")
    (clone.folder / "hosts.toml").write_text(text.replace("EVIL", "WORSE"))
    assert shown.replace("EVIL", "WORSE") in clone.distrust()


def test_only_what_has_changed_is_asked_for_again(clone):
    hosts = '[hosts."gpu-[1-4]"]\nworkers = 1\n'
    clone.write(hosts)
    assert 'hosts.gpu-[1-4] = "gpu-[1-4]" runs its programs' in clone.distrust()
    clone.tf("trust")
    clone.write(hosts + 'user = "ada"\n')
    assert clone.distrust().splitlines()[1:-1] == [
        f'  hosts.gpu-{n} = "ada@gpu-{n}" runs its programs (until now "gpu-{n}")'
        for n in (1, 2, 3, 4)
    ]
    clone.write(hosts + "gpus = 1\nports = [2300]\nenv.LR = '2'\n")
    text = (clone.folder / "hosts.toml").read_text()
    for command in ("python train.py --lr 0.1", ["python", "train.py", "-c", "x"]):
        edited = text.replace('"python train.py"', json.dumps(command))
        (clone.folder / "hosts.toml").write_text(edited)
        load_inventory(clone.folder / "hosts.toml")
    for command in ("python other.py", "python -c x train.py", "sh -c x", "python -m train"):
        edited = text.replace('"python train.py"', json.dumps(command))
        (clone.folder / "hosts.toml").write_text(edited)
        assert '(until now "python train.py")' in clone.distrust()
    clone.write('[hosts."gpu-[1-5]"]\nworkers = 1\n')
    assert clone.distrust().splitlines()[1] == '  hosts.gpu-5 = "gpu-5" runs its programs'


def test_the_record_of_a_run_needs_trust_even_if_hosts_toml_is_harmless(clone):
    clone.write(f'{LOCAL}python = "{clone.folder}/evil.sh"\n')
    write_record(clone)
    clone.write(LOCAL)
    assert clone.tf("plan").returncode == 0
    said = clone.refusal("status")
    assert "the record of run 20260101-000000-aaaa needs your trust" in said
    assert "tfdeploy trust --run 20260101-000000-aaaa" in said


@pytest.mark.parametrize(
    "values",
    [
        *({key: "../../clone/evil"} for key in ("agent", "release", "hosts_file")),
        *(
            {"environments": {"here": "../../x"}},
            {"data": {"d": "../../x"}},
            {"data": 5},
            {"auto_ports": 5},
            {"starts": "many"},
        ),
    ],
    ids=str,
)
def test_the_record_of_a_run_names_nothing_outside_its_folders(clone, values):
    clone.write(LOCAL)
    clone.tf("trust")
    write_record(clone, **values)
    assert "is broken" in clone.refusal("status --run 20260101-000000-aaaa")


@pytest.mark.parametrize(
    ("lines", "shown"),
    [
        ('[source]\npath = "~/.ssh"', 'source.path = "~/.ssh" is outside of'),
        ('[source]\npath = ".."', 'source.path = ".." is outside of'),
        ('[source]\npath = "link"', 'source.path = "link" is outside of'),
        ('[data.keys]\npath = "~/.ssh"', 'data."keys".path = "~/.ssh" is outside of'),
        ("[data.link]", 'data."link".path = "link" is outside of'),
        ('[env]\nrequirements = "../r.txt"', 'clone/../r.txt" is outside of'),
        ('[env]\nrequirements = "more.txt"', 'env.requirements = "/etc/passwd" is outside of'),
        ('[env]\nrequirements = "link/uv.lock"', '/link/pyproject.toml" is outside of'),
        ('[training.env]\nLD_PRELOAD = "evil.so"', 'training.env.LD_PRELOAD = "evil.so" can'),
        ('[training.role_env]\nLD_AUDIT = "x"', 'training.role_env.LD_AUDIT = "x" can change'),
        ('[training.worker.env]\nPATH = "."', 'training.worker.env.PATH = "." can change'),
        ('[training.env]\nOPENSSL_CONF = "x"', 'training.env.OPENSSL_CONF = "x" can change'),
        ('[defaults.env]\nPYTHONPATH = "x"', 'hosts.here.env.PYTHONPATH = "x" can change'),
        ('[defaults]\npython = "reboot"', 'hosts.here.python = "reboot" runs there'),
        ('[defaults]\ndirectory = "~/src"', 'hosts.here.directory = "~/src" can have programs'),
        (
            '[defaults]\ndirectory = "~/clone/x"',
            '"~/clone/x" can have programs',
        ),
    ],
)
def test_what_leads_out_of_the_repository_needs_trust(clone, lines, shown):
    (clone.home / ".ssh").mkdir()
    (clone.home / ".ssh" / "id_work").write_text("secret")
    (clone.folder / "link").symlink_to(clone.home / ".ssh")
    (clone.folder / "more.txt").write_text("-r /etc/passwd\n")
    clone.write(f"{lines}\n{LOCAL}")
    assert shown in clone.distrust()


@pytest.mark.parametrize("imports", ["antigravity", "tensorflow.sub", "jax_evil"])
def test_a_module_that_is_imported_on_a_host_needs_trust(clone, imports):
    clone.write(f'imports = ["jax", "{imports}"]\n{LOCAL}')
    assert f'training.imports = "{imports}" is imported on its hosts' in clone.distrust()
    clone.write(f'imports = ["jax", "torch", "tensorflow"]\n{LOCAL}')
    assert "training.imports" not in clone.distrust()


def test_the_tree_itself_needs_no_trust(clone):
    sub = clone.folder / "deploy"
    sub.mkdir()
    clone.write(f'[source]\npath = ".."\n[training.env]\nPYTHONUNBUFFERED = "1"\n{LOCAL}')
    (clone.folder / "hosts.toml").rename(sub / "hosts.toml")
    done = clone.tf("plan --hosts deploy/hosts.toml")
    assert done.returncode == 0, done.stderr


def test_a_home_in_git_is_no_repository(clone):
    (clone.home / ".git").mkdir()
    (clone.folder / ".git").rmdir()
    clone.write(f'[source]\npath = ".."\n{LOCAL}')
    assert "is outside of" in clone.distrust()


def test_trust_is_asked_for_once_and_again_for_a_changed_ssh_config(clone):
    clone.write("[hosts.a]\nworkers = 1\n", 'ssh_config = "ssh.conf"')
    config = clone.folder / "ssh.conf"
    config.write_text("Host *\n  HostName 127.0.0.9\n  ProxyCommand nc %h %p\n")
    assert "needs your trust" in clone.refusal("plan")
    assert clone.tf("trust").stdout.splitlines() == [
        f"trusted for {clone.folder}:",
        '  ssh_config = "ssh.conf" has ProxyCommand in line 3',
        '  hosts.a = "a" runs its programs',
        '  training.command = "python train.py" runs on its hosts',
    ]
    clone.write("[hosts.a]\nworkers = 2\n", 'ssh_config = "ssh.conf"')
    assert clone.tf("plan").returncode == 0  # other keys change nothing
    config.write_text(f"Host *\n  HostName 127.0.0.9\n  ProxyCommand touch {clone.ran}\n")
    assert "ProxyCommand in line 3" in clone.distrust()


def test_a_changed_file_that_the_ssh_config_includes_is_asked_for_again(clone):
    clone.write("[hosts.a]\nworkers = 1\n", 'ssh_config = "ssh.conf"')
    (clone.folder / "ssh.conf").write_text(f"Include {clone.folder}/m*.conf\n")
    more = clone.folder / "more.conf"
    more.write_text("HostName 127.0.0.9\n")
    clone.tf("trust")
    assert clone.tf("plan").returncode == 0
    more.write_text(f"ProxyCommand touch {clone.ran}\n")
    assert "Include in line 1" in clone.distrust()


@pytest.mark.parametrize(
    "line",
    [
        "ProxyCommand ./proxy.sh %h %p",
        "ProxyCommand sh -c 'exec \"./proxy.sh\" %h'",
        "ProxyCommand=bash ~/clone/proxy.sh",
        'Match exec "sh -x ./proxy.sh"',
        "KnownHostsCommand {folder}/proxy.sh %H",
        "ProxyCommand {folder}/../clone/proxy.sh",
        "ProxyCommand ./linked.sh",
        *(
            f"ProxyCommand {home}/clone/proxy.sh"
            for home in ("$HOME", "${{HOME}}/../{user}", "%d", "~")
        ),
        *(f"ProxyCommand sh {here}/proxy.sh" for here in ("$PWD", "${{PWD}}", "$PWD/../clone")),
        "ProxyCommand ./pro\\xy.sh",
        "ProxyCommand ./pr''oxy.sh",
        'ProxyCommand ./pr""oxy.sh',
        'ProxyCommand "./pr""oxy.sh" -- [%h]:%p',
        "ProxyCommand true;./a,b=c.sh",
    ],
)
def test_a_changed_script_that_the_ssh_config_names_is_asked_for_again(clone, line, monkeypatch):
    monkeypatch.chdir(clone.folder)
    clone.write("[hosts.a]\nworkers = 1\n", 'ssh_config = "ssh.conf"')
    (clone.folder / "ssh.conf").write_text(
        line.format(folder=clone.folder, user=clone.home.name) + "\n"
    )
    script = clone.folder / "proxy.sh"
    script.write_text("exec nc $1 22\n")
    for link in ("linked.sh", "a,b=c.sh"):
        (clone.folder / link).symlink_to("proxy.sh")
    trust(clone.folder / "hosts.toml")
    load_inventory(clone.folder / "hosts.toml")
    script.write_text(f"touch {clone.ran}\n")
    assert "in line 1" in clone.distrust()


@pytest.mark.parametrize(
    "line",
    [
        *(
            f"ProxyCommand {each}"
            for each in ("./proxy.s?", "./p*", "./pro[x]y.sh", "./prox{y,}.sh")
        ),
        *(f"ProxyCommand {each}" for each in ("$X", "./%h.sh", "`x`", "~+/proxy.sh", "sh '", "%%")),
        'Match exec "./proxy.s?"',
        '"ProxyCommand" ./proxy.sh',
        "UserKnownHostsFile ./known_hosts%h",
    ],
)
def test_a_script_that_cannot_be_known_is_never_trusted(clone, line, monkeypatch):
    monkeypatch.chdir(clone.folder)
    clone.write("[hosts.a]\nworkers = 1\n", 'ssh_config = "ssh.conf"')
    (clone.folder / "ssh.conf").write_text(line + "\n")
    (clone.folder / "proxy.sh").write_text("exec nc $1 22\n")
    trust(clone.folder / "hosts.toml")
    assert "files in line 1 whose names can't be known" in clone.distrust()


def test_usual_ssh_configs_can_be_trusted(clone):
    clone.write("[hosts.a]\nworkers = 1\n", 'ssh_config = "ssh.conf"')
    (clone.folder / "ssh.conf").write_text(
        "Host gpu-* !gpu-9?\n  ProxyCommand ssh -q -W [%h]:%p %r@bastion\n"
        "  ControlPath ~/.ssh/%r@%h:%p\n  SendEnv LC_*\n  UserKnownHostsFile ~/.ssh/known_hosts\n"
        "Host b\n ProxyCommand sh -c \"aws ssm start-session --parameters 'portNumber=%p'\"\n"
        'Host c\n ProxyCommand nc -x proxy.lab:3128 %h.lab %p\n User "lab\\ada"\n'
    )
    trust(clone.folder / "hosts.toml")
    load_inventory(clone.folder / "hosts.toml")


def test_a_link_that_leads_to_another_script_is_asked_for_again(clone, monkeypatch):
    monkeypatch.chdir(clone.folder)
    clone.write("[hosts.a]\nworkers = 1\n", 'ssh_config = "ssh.conf"')
    (clone.folder / "ssh.conf").write_text("ProxyCommand ./proxy %h\n")
    (clone.folder / "proxy").symlink_to("/usr/bin/true")
    clone.tf("trust")
    load_inventory(clone.folder / "hosts.toml")
    (clone.folder / "proxy").unlink()
    (clone.folder / "proxy").symlink_to("/usr/bin/false")
    assert "ProxyCommand in line 1" in clone.distrust()


@pytest.mark.parametrize("line", ['python = "~/clone/evil.sh"', 'env.LD_PRELOAD = "a:./evil.sh"'])
def test_a_changed_program_of_a_local_host_is_asked_for_again(clone, line):
    clone.write(f"{LOCAL}{line}\n")
    clone.tf("trust")
    load_inventory(clone.folder / "hosts.toml")
    (clone.folder / "evil.sh").write_text("#!/bin/sh\nreboot\n")
    assert "evil.sh" in clone.distrust()


@pytest.mark.parametrize("target", ["../.bashrc", "../.config/autostart/x", "/etc/profile"])
@pytest.mark.parametrize(
    "named", ["./known_hosts", "%d/clone/known_hosts", "~/.ssh/../clone/known_hosts"]
)
def test_a_known_hosts_file_that_is_a_link_needs_trust(clone, target, named, monkeypatch):
    monkeypatch.chdir(clone.folder)
    (clone.home / ".ssh").mkdir()
    clone.write("[hosts.a]\nworkers = 1\n", 'ssh_config = "ssh.conf"')
    (clone.folder / "ssh.conf").write_text(f"UserKnownHostsFile {named}\n")
    (clone.folder / "known_hosts").symlink_to(target)
    assert "UserKnownHostsFile in line 1" in clone.distrust()
    (clone.folder / "known_hosts").unlink()
    (clone.folder / "known_hosts").write_text("")
    load_to_plan(clone.folder / "hosts.toml")


def test_a_folder_above_the_users_own_is_not_one_of_them(clone, tmp_path):
    (clone.home / ".ssh").mkdir()
    shared = tmp_path / "shared"
    (shared / "cm").mkdir(parents=True)
    (clone.home / ".ssh/cm").symlink_to(shared / "cm")
    (shared / "evil.conf").write_text(f"ProxyCommand touch {clone.ran}\n")
    clone.write("[hosts.a]\nworkers = 1\n", 'ssh_config = "~/.ssh/cm/../evil.conf"')
    assert "ProxyCommand in line 1" in clone.distrust()
    clone.write("[hosts.a]\nworkers = 1\n", 'ssh_config = "ssh.conf"')
    (clone.folder / "ssh.conf").write_text("Include ~/.ssh/cm/../evil.conf\n")
    clone.tf("trust")
    (shared / "evil.conf").write_text(f"ProxyCommand touch {clone.ran} now\n")
    assert "Include in line 1" in clone.distrust()


def test_a_file_in_the_users_own_folder_that_others_can_write_needs_trust(clone, tmp_path):
    (clone.home / ".ssh").mkdir()
    (tmp_path / "theirs").write_text("ProxyCommand nc %h %p\n")
    (clone.home / ".ssh/work").symlink_to(tmp_path / "theirs")
    clone.write("[hosts.a]\nworkers = 1\n", 'ssh_config = "~/.ssh/work"')
    load_to_plan(clone.folder / "hosts.toml")
    (tmp_path / "theirs").chmod(0o666)
    assert "ProxyCommand in line 1" in clone.distrust()


def test_a_file_beside_the_users_own_is_not_one_of_them(clone):
    (clone.home / ".ssh").mkdir()
    clone.write("[hosts.a]\nworkers = 1\n", 'ssh_config = "ssh.conf"')
    (clone.folder / "ssh.conf").write_text("Include ../clone/more.conf\n")
    more = clone.folder / "more.conf"
    more.write_text("HostName 127.0.0.9\n")
    clone.tf("trust")
    more.write_text(f"ProxyCommand touch {clone.ran}\n")
    assert "Include in line 1" in clone.distrust()


def test_the_users_own_ssh_config_needs_no_trust(clone):
    (clone.home / ".ssh").mkdir()
    (clone.home / ".ssh" / "work").write_text("ProxyCommand nc %h %p\n")
    clone.write("[hosts.a]\nworkers = 1\n", 'ssh_config = "~/.ssh/work"')
    load_to_plan(clone.folder / "hosts.toml")


def test_a_path_that_a_shell_would_obey_needs_trust(clone):
    folder = clone.folder / "c$(."
    folder.mkdir()
    (folder / "evil.sh)").write_text("ProxyJump b\n")
    clone.write("[hosts.a]\nworkers = 1\n", 'ssh_config = "c$(./evil.sh)"')
    assert "characters of a shell in its path" in clone.distrust()


def test_an_ssh_config_of_any_bytes_can_be_trusted(clone):
    clone.write("[hosts.a]\nworkers = 1\n", 'ssh_config = "ssh.conf"')
    (clone.folder / "ssh.conf").write_bytes(b"\xff\x80Foo bar\n")
    assert "Foo bar in line 1" in clone.distrust()
    assert clone.tf("trust").returncode == 0
    load_inventory(clone.folder / "hosts.toml")


def test_trust_is_private_and_only_for_its_folder(clone):
    clone.write(f'[source]\npath = ".."\n{LOCAL}')
    clone.tf("trust")
    (file,) = (clone.home / ".config" / "tfdeploy" / "trusted").iterdir()
    assert file.stat().st_mode & 0o077 == file.parent.stat().st_mode & 0o077 == 0
    clone.folder.rename(clone.home / "other")
    clone.folder = clone.home / "other"
    assert "needs your trust" in clone.distrust()


def test_trust_of_another_user_does_not_count(clone):
    if os.geteuid() != 0:
        pytest.skip("only root can give a file to another user")
    clone.write(f'[source]\npath = ".."\n{LOCAL}')
    clone.tf("trust")
    (file,) = (clone.home / ".config" / "tfdeploy" / "trusted").iterdir()
    os.chown(file, 65534, -1)
    assert "needs your trust" in clone.distrust()
    assert f"{file} belongs to another user" in clone.refusal("trust")


def test_on_a_terminal_the_command_asks(clone):
    clone.write(f'[source]\npath = ".."\n{LOCAL}')
    (clone.home / "train.py").touch()
    code, shown = clone.on_terminal("plan", "n")
    assert code == 1
    assert 'source.path = ".." is outside of' in shown
    assert "worker:0" not in shown
    code, shown = clone.on_terminal("plan", "y")
    assert (code, "worker:0" in shown) == (0, True), shown
    load_inventory(clone.folder / "hosts.toml")


# A program that draws as `report` does, and prints the files that it opens in the current folder.
DRAWS = """
import os, sys
from tfdeploy.branches.measuring import plots
here = os.path.join(os.getcwd(), "")
def print_opened(event, args):
    if event == "open" and isinstance(args[0], str) and os.path.abspath(args[0]).startswith(here):
        print(args[0])
sys.addaudithook(print_opened)
line = plots.Line("a", [1, 2], [3, 4])
svg = plots.to_web_svg(plots.Panel("loss", "step", [line]), ["a"], "loss")
assert svg.startswith("<svg"), svg[:80]
assert os.path.join(os.getcwd(), "") == here
"""


def test_a_plot_is_drawn_without_the_settings_of_the_current_folder(clone):
    (clone.folder / "matplotlibrc").symlink_to("/dev/zero")
    done = subprocess.run(
        [sys.executable, "-P", "-c", DRAWS], cwd=clone.folder,
        env=clone.environment(), capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


class Index(http.server.BaseHTTPRequestHandler):
    """An index of somebody else: it has no package, and stores what it receives."""

    told: ClassVar[list] = []

    def do_GET(self):
        self.told.append((self.path, self.headers.get("Authorization"), self.headers.get("Cookie")))
        self.send_error(404)

    def log_message(self, *args):
        pass


@pytest.fixture
def index():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Index) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_an_index_of_a_clone_learns_the_packages_and_nothing_of_the_controller(
    index, home, tmp_path, monkeypatch
):
    """The wheels for a host without a network are looked for where the requirements say."""
    monkeypatch.setenv("TOKEN", "secret")
    (home / ".netrc").write_text("machine elsewhere.example login me password secret\n")
    lines = (f"--index-url {index}/$TOKEN/simple", "no-such-package==1")
    spec = EnvironmentSpec("e", lines, (), {}, "3.11", ())
    with pytest.raises(wheelhouse.NoWheels):
        wheelhouse.download(spec, wheelhouse.WheelTarget("3.11", "x86_64", "glibc 2.36"), tmp_path)
    assert set(Index.told) == {("/$TOKEN/simple/no-such-package/", None, None)}
