"""What ssh asks on the terminal, once for each host: passphrases, passwords, second factors."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from support.command_line import REAL
from support.ssh_sites import HOST, SshSite, with_tensorflow
from support.sshd import PrivateEtcSshd
from support.terminal import answer_prompts

if TYPE_CHECKING:
    from pathlib import Path

CODE = "246810"
PHRASE = "open sesame"
PAM = """\
auth required pam_exec.so quiet expose_authtok {folder}/check
auth required pam_permit.so
account required pam_permit.so
session required pam_permit.so
"""
CHECK = """\
#!/bin/sh
read -r code
echo "$code" >> {folder}/codes
[ "$code" = {code} ]
"""
SECRET = "JBSWY3DPEHPK3PXP"
STEPS = 20  # that the clock may go on until the code is read: 10 minutes
CHECK_ONE_TIME = f"""\
#!/bin/sh
read -r code
! grep -qx "$code" {{folder}}/codes && oathtool --totp --base32 -w {STEPS} {SECRET} "$code" &&
    echo "$code" >> {{folder}}/codes
"""
SECOND_FACTOR = (
    *("UsePAM yes", "KbdInteractiveAuthentication yes"),
    "AuthenticationMethods publickey,keyboard-interactive",
)
PASSWORD = ("UsePAM yes", "PasswordAuthentication yes", "AuthenticationMethods password")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give sshd its own PAM")


class PamSshd(PrivateEtcSshd):
    """An sshd that asks a PAM of its own, which runs `check`."""

    check = CHECK

    def start(self) -> None:
        folder = self._log_file.parent
        if not (rules := folder / "etc/pam.d").exists():
            shutil.copytree("/etc/pam.d", rules)
            (rules / "sshd").write_text(PAM.format(folder=folder))
            (folder / "check").write_text(self.check.format(folder=folder, code=CODE))
            (folder / "check").chmod(0o755)
        super().start()


class OneTimeCodeSshd(PamSshd):
    """An sshd that asks for a code of the moment, and takes no code twice."""

    check = CHECK_ONE_TIME


def ask(site: SshSite, answers: dict[str, str], *words: str) -> tuple[str, list[str]]:
    """Run a command that succeeds on a terminal; return what it printed, and the prompts."""
    code, output, prompts = on_terminal(site, answers, *words)
    assert code == 0, output
    return output, prompts


def on_terminal(site: SshSite, answers: dict[str, str], *words: str) -> tuple[int, str, list[str]]:
    return answer_prompts([*REAL, *words], answers, site.project.folder, site.env)


def locked_key(site: SshSite) -> Path:
    """Return a key of the user with a passphrase."""
    key = site.folder / "locked"
    shutil.copy(site.keys.user, key)
    change = ["ssh-keygen", "-q", "-p", "-P", "", "-N", PHRASE, "-f", key]
    subprocess.run(change, check=True, stdout=subprocess.DEVNULL)
    return key


def test_a_key_with_a_passphrase_is_unlocked_once(site):
    site.sshd()
    site.entry["IdentityFile"] = str(locked_key(site))
    site.make_project()
    error = site.error()
    assert f"{HOST}: the key is locked with a passphrase" in error
    assert ask(site, {"Enter passphrase": PHRASE}, "push")[1] == ["Enter passphrase"]
    assert site.reason() == "it refused Fabric's login, and ssh's succeeded"
    site.works()  # without a terminal


@as_root
def test_a_second_factor_is_asked_once(site):
    site.sshd(*SECOND_FACTOR, kind=PamSshd)
    site.make_project()
    error = site.error()
    assert f"{HOST}: it asks for a password or a second factor" in error
    assert "open the connection on a terminal: ssh " in error
    output, prompts = ask(site, {"Password": CODE}, "push")
    assert prompts == ["Password"]
    assert f"note: {HOST}: OpenSSH connects to it" in output
    site.works()
    assert (site.folder / "codes").read_text() == f"{CODE}\n"


@pytest.mark.slow
@as_root
def test_a_one_time_code_is_asked_once(site):
    if not shutil.which("oathtool"):
        pytest.skip("oathtool missing: tests/hosts/install-missing oathtool")
    site.sshd(*SECOND_FACTOR, kind=OneTimeCodeSshd)
    site.make_project()
    (site.folder / "codes").touch()
    make_code = ["oathtool", "--totp", "--base32", SECRET]
    code = subprocess.run(make_code, check=True, capture_output=True, text=True).stdout.strip()
    assert ask(site, {"Password": code}, "push")[1] == ["Password"]
    site.works()
    assert (site.folder / "codes").read_text() == f"{code}\n"


@pytest.mark.slow
@as_root
def test_a_new_user_is_asked_for_a_second_factor_once_from_init_to_collect(site):
    site.sshd(*SECOND_FACTOR, with_tensorflow(), kind=PamSshd)
    site.make_project()
    (site.project.folder / "hosts.toml").unlink()
    words = ("init", "--yes", "--ssh-config", str(site.config), HOST)
    assert ask(site, {"Password": CODE}, *words)[1] == ["Password"]
    site.runs_what_init_wrote()
    assert (site.folder / "codes").read_text() == f"{CODE}\n"


@pytest.mark.slow
@as_root
def test_the_command_that_an_error_names_opens_the_connection(site):
    site.sshd(*SECOND_FACTOR, kind=PamSshd)
    site.make_project(transport="openssh")
    typed = site.error().rpartition("open the connection on a terminal: ")[2].strip()
    code, output, prompts = answer_prompts(
        ["sh", "-c", f"trap '' HUP; {typed}"], {"Password": CODE}, site.folder, site.env
    )
    assert (code, prompts) == (0, ["Password"]), output
    site.works()


@pytest.mark.slow
@as_root
def test_only_a_password_is_asked_once(site):
    site.sshd(*PASSWORD, kind=PamSshd)
    site.entry["PreferredAuthentications"] = "password"
    site.make_project()
    assert site.reason() == "PreferredAuthentications password in ssh's configuration"
    assert ask(site, {"'s password": CODE}, "push")[1] == ["'s password"]
    site.works()


@pytest.mark.slow
@as_root
def test_a_wrong_password_ends_the_command_with_one_error(site):
    site.sshd(*PASSWORD, kind=PamSshd)
    site.entry |= {"PreferredAuthentications": "password", "NumberOfPasswordPrompts": "1"}
    site.make_project()
    code, output, prompts = on_terminal(site, {"'s password": "no"}, "push")
    assert (code, prompts) == (1, ["'s password"])
    assert f"{HOST}: its login on the terminal failed" in output


@pytest.mark.slow
@as_root
def test_a_second_factor_at_the_jump_host_is_asked_once(site):
    site.sshd()
    site.jump("bastion", *SECOND_FACTOR, kind=PamSshd)
    site.entry["ProxyJump"] = "bastion"
    site.make_project()
    assert "jump host bastion" in site.error()
    assert ask(site, {"Password": CODE}, "push")[1] == ["Password"]
    site.works()


@pytest.mark.slow
@as_root
def test_two_hosts_ask_one_after_the_other(site):
    """The second prompt comes after the first was answered."""
    site.sshd(*SECOND_FACTOR, kind=PamSshd)
    site.make_project(transport="openssh")
    site.add_twin()
    output, prompts = ask(site, {"Password": CODE}, "push")
    assert prompts == ["Password"] * 2
    answered = [line for line in output.splitlines() if "Password:" in line]
    assert all(line.count("Password:") == 1 for line in answered)
    site.works()


@pytest.mark.slow
@as_root
def test_ctrl_c_at_a_prompt_ends_the_command(site):
    site.sshd(*SECOND_FACTOR, kind=PamSshd)
    site.make_project(transport="openssh")
    code, output, _ = on_terminal(site, {"Password": "\x03"}, "push")
    assert code == 130
    assert "interrupted" in output


def test_ctrl_z_at_a_prompt_stops_nothing(site):
    """The terminal's foreground job would be a stopped ssh, which no Ctrl-C reaches."""
    site.sshd()
    site.entry["IdentityFile"] = str(locked_key(site))
    site.make_project(transport="openssh")
    code, output, _ = on_terminal(site, {"Enter passphrase": f"\x1a{PHRASE}"}, "push")
    assert code == 0, output
