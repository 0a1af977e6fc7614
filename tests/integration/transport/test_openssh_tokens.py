"""Logins with Kerberos, a smart card (SoftHSM) and a FIDO key, each with a real sshd."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support import security_key
from support.command_line import REAL
from support.ports import free_port
from support.ssh_sites import HOST
from support.sshd import program
from support.terminal import answer_prompts
from support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator


pytestmark = pytest.mark.slow

REALM = "TFDEPLOY.TEST"
KERBEROS = """\
[libdefaults]
  default_realm = {realm}
  dns_lookup_kdc = false
  dns_canonicalize_hostname = false
  rdns = false
  udp_preference_limit = 1
[realms]
  {realm} = {{
    kdc = 127.0.0.1:{port}
  }}
"""
KDC = """\
[realms]
  {realm} = {{
    database_name = {folder}/principals
    key_stash_file = {folder}/stash
    acl_file = {folder}/acl
    kdc_listen = 127.0.0.1:{port}
    kdc_tcp_listen = 127.0.0.1:{port}
  }}
"""
PIN = "135790"
SOFTHSM = [
    Path(f"/usr/lib/{folder}/libsofthsm2.so") for folder in ("softhsm", "x86_64-linux-gnu/softhsm")
]


@pytest.fixture
def realm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A Kerberos realm with its KDC, the user, and the host `localhost`."""
    if not (program("krb5kdc") and program("kadmin.local")):
        pytest.skip("Kerberos missing: tests/hosts/install-missing kerberos")
    folder, names = tmp_path / "kdc", {"realm": REALM, "port": free_port()}
    folder.mkdir()
    (folder / "krb5.conf").write_text(KERBEROS.format(**names))
    (folder / "kdc.conf").write_text(KDC.format(**names, folder=folder))
    for name, file in (("CONFIG", "krb5.conf"), ("KDC_PROFILE", "kdc.conf"), ("KTNAME", "keytab")):
        monkeypatch.setenv(f"KRB5_{name}", str(folder / file))
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{folder}/tickets")
    run("kdb5_util", "create", "-s", "-P", "master")
    for query in (
        "addprinc -pw secret root",
        "addprinc -randkey host/localhost",
        "ktadd host/localhost",
    ):
        run("kadmin.local", "-q", query)
    kdc = subprocess.Popen([program("krb5kdc"), "-n"], stdout=subprocess.DEVNULL)
    yield
    kdc.terminate()
    kdc.wait()


def run(name: str, *words: object, text: str = "") -> str:
    argv = [program(name), *map(str, words)]
    done = subprocess.run(argv, input=text, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}"
    return done.stdout


def has_ticket() -> bool:
    """Ask for a ticket, which needs the KDC to listen."""
    argv = [program("kinit"), f"root@{REALM}"]
    return subprocess.run(argv, input="secret\n", capture_output=True, text=True).returncode == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="the principal of this test is root's")
def test_a_kerberos_ticket(site, realm):
    site.sshd("GSSAPIAuthentication yes", "GSSAPIStrictAcceptorCheck no")
    site.known_lines = [line.replace("127.0.0.1", "localhost") for line in site.known_lines]
    site.entry |= {"HostName": "localhost", "GSSAPIAuthentication": "yes"}
    site.entry |= {"IdentityFile": str(site.keys.stranger)}
    site.make_project()
    assert site.reason() == ""
    assert f"{HOST}: it refused every key that was offered" in site.error()
    until(has_ticket, "a ticket")
    assert (
        site.reason()
        == "GSSAPIAuthentication in ssh's configuration, and there is a Kerberos ticket"
    )
    site.works()


def test_a_smart_card_asks_for_its_pin_once(site, monkeypatch):
    library = next((file for file in SOFTHSM if file.exists()), None)
    if not library:
        pytest.skip("SoftHSM missing: tests/hosts/install-missing softhsm")
    (site.folder / "tokens").mkdir()
    (site.folder / "softhsm2.conf").write_text(f"directories.tokendir = {site.folder}/tokens\n")
    monkeypatch.setenv("SOFTHSM2_CONF", str(site.folder / "softhsm2.conf"))
    key = site.folder / "card"
    run("ssh-keygen", "-q", "-t", "ecdsa", "-m", "PKCS8", "-N", "", "-f", key)
    pins = ("--pin", PIN, "--so-pin", PIN)
    run("softhsm2-util", "--init-token", "--free", "--label", "card", *pins)
    words = ("--token", "card", "--label", "login", "--id", "01", "--pin", PIN)
    run("softhsm2-util", "--import", key, *words)
    site.sshd(f"AuthorizedKeysFile {key}.pub")
    site.entry |= {"PKCS11Provider": str(library), "IdentityFile": str(site.keys.stranger)}
    site.entry |= {"IdentitiesOnly": "no"}
    site.make_project()
    assert site.reason().startswith("PKCS11Provider ")
    assert "open the connection on a terminal: ssh " in site.error()
    push = [*REAL, "push"]
    code, output, prompts = answer_prompts(push, {"Enter PIN": PIN}, site.project.folder, site.env)
    assert (code, prompts) == (0, ["Enter PIN"]), output
    site.works()


def test_a_fido_key(site, monkeypatch):
    """It needs a touch, which the provider of this test replaces."""
    if not shutil.which("cc"):
        pytest.skip("cc missing: apt-get install gcc")
    support = Path(security_key.__file__).parent
    provider, key = site.folder / "provider.so", site.folder / "fido"
    run("cc", "-shared", "-fPIC", "-o", provider, support / "security_key.c")
    monkeypatch.setenv("SECURITY_KEY", f"{sys.executable} {support / 'security_key.py'}")
    run("ssh-keygen", "-q", "-t", "ed25519-sk", "-w", provider, "-N", "", "-f", key)
    site.sshd(f"AuthorizedKeysFile {key}.pub")
    site.entry |= {"IdentityFile": str(key), "SecurityKeyProvider": str(provider)}
    site.make_project()
    assert site.reason().startswith("SecurityKeyProvider ")
    site.works()
    site.entry.pop("SecurityKeyProvider")
    site.write()
    assert site.reason() == f"the key {key} is on a security key"
