"""The machines that a hosts.toml names, and that dump() writes the same inventory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import hosts_toml, make_inventory, refusal_of

from tfdeploy.config import inventory as inventories
from tfdeploy.config import toml_text

# One machine


@pytest.mark.parametrize(
    ("hosts", "how"),
    [
        ('[hosts.a]\nhostname = "h"\n[hosts.b]\nhostname = "h"', "h port 22"),
        ('[hosts.a]\nhostname = "b"\n[hosts.b]', "b port 22"),
        ('[hosts.a]\nhostname = "h"\nport = 22\n[hosts.b]\nhostname = "h"', "h port 22"),
        ('[hosts.a]\ntransport = "local"\n[hosts.b]\ntransport = "local"', 'transport = "local"'),
    ],
)
def test_two_hosts_that_are_one_machine_are_refused(hosts, how):
    assert refusal_of(hosts_toml(hosts)) == (
        [f"hosts.b is the same machine as hosts.a ({how})"],
        "keep one of them and give it all tasks: a host may have ps = 1 and workers = 2",
    )


def test_host_names_are_compared_without_case():
    messages, _ = refusal_of(
        hosts_toml('[hosts.a]\nhostname = "GPU.org"\n[hosts.b]\nhostname = "gpu.org"')
    )
    assert "hosts.b is the same machine as hosts.a" in messages[0]


def test_two_ssh_ports_of_one_address_are_two_machines():
    inventory = make_inventory(
        '[hosts.a]\nhostname = "h"\nport = 1\n[hosts.b]\nhostname = "h"\nport = 2'
    )
    assert len(inventory.hosts) == 2


@pytest.mark.parametrize(
    "line",
    ['hostname = "h"', 'user = "u"', "port = 22", 'identity_file = "k"', 'proxy_jump = "j"'],
)
def test_a_local_host_with_a_key_for_ssh_is_refused(line):
    messages, _ = refusal_of(hosts_toml(f'[hosts.a]\ntransport = "local"\n{line}'))
    key = line.split()[0]
    assert messages == [
        f'hosts.a: {key} is for SSH, which transport = "local" does not use; remove {key}'
    ]


# dump


STRINGS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
AWKWARD = st.sampled_from(
    [
        '"', "'", "\\", "\\x41", "\\u0041", "$(reboot)", "`id`", "${HOME}", "a b", "\n", "\r\n",
        "\t", "\x01\x1b[31m", "\x7f", "\x85", "\u2028", "é", "漢字", "😀", "\ufeff", "#", '"""',
        "'''", "",
    ]
)  # fmt: skip
TEXT = STRINGS | AWKWARD
VARIABLES = st.dictionaries(st.from_regex(r"[A-Z_]{1,8}", fullmatch=True), TEXT, max_size=3)


def dump_and_parse(inventory):
    return inventories.parse(toml_text.write(inventory.to_toml()), inventory.file)


@given(st.lists(TEXT, min_size=1, max_size=4), VARIABLES)
def test_dump_keeps_any_string(words, env):
    inventory = make_inventory('[hosts.a]\nps = 1\nenv = {A = "1"}')
    command = ("run", *words)
    training = inventory.training.copy_with({"command": command, "env": env})
    host = inventory.hosts[0].copy_with({"env": env})
    inventory = inventory.copy_with({"training": training, "hosts": (host,)})
    assert dump_and_parse(inventory) == inventory


@pytest.mark.parametrize(
    "hosts",
    [
        '[defaults]\nuser = "ada"\nenv = {A = "1"}\n[hosts.a]\nps = 1\n[hosts."b.c"]\nworkers = 2',
        '[hosts.a]\ngpus = [3, 1]\nworkers = "per-gpu"\nports = "5-9"\nchief = true',
        '[hosts.a]\ntransport = "local"\nevaluator = true\nworkers = 1\ngpus_per_worker = 0',
        '[hosts.a]\nps = 1\nports = "auto"\n[hosts.b]\nspare = true\nports = 7',
    ],
)
def test_dump_keeps_hosts(hosts):
    inventory = make_inventory(
        hosts,
        training='role = "flags"\nstop_grace_s = 2.5\nrole_env = {A = "{task}"}\nreplicas = 1',
        top='ssh_config = "x"\n[source]\nexclude = ["*.c"]\n[restart]\nexits = [3, "SIGKILL"]\n'
        "[restart.ps]\nattempts = 0",
    )
    assert dump_and_parse(inventory) == inventory


def test_ssh_keys_of_defaults_do_not_apply_to_local_hosts():
    inventory = make_inventory(
        '[defaults]\nuser = "ada"\nport = 2200\n'
        '[hosts.here]\ntransport = "local"\n[hosts.there]\nworkers = 1'
    )
    assert [(host.user, host.port) for host in inventory.hosts] == [(None, None), ("ada", 2200)]


def test_dump_leaves_out_unset_keys_so_that_a_job_still_follows_restart():
    dumped = make_inventory(top="[restart]\nattempts = 3\n[restart.ps]\ndelay_s = 7")
    restart = dump_and_parse(dumped).restart
    assert (restart.for_job("ps").attempts, restart.for_job("ps").delay_s) == (3, 7)
    assert (restart.for_job("chief").attempts, restart.for_job("chief").delay_s) == (3, 1)
