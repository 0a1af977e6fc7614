"""Which machines a hosts.toml names, and that one which is written again is the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdeploy import inventory as inventories
from unit.made import inventory, refusal, text

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
def test_two_names_for_one_machine_are_refused(hosts, how):
    assert refusal(text(hosts)) == (
        [f"hosts.b is the same machine as hosts.a ({how})"],
        "give one host all of its tasks: ps = 1 and workers = 2 can stand together",
    )


def test_a_host_name_in_capitals_is_the_same_machine():
    sentences, _ = refusal(text('[hosts.a]\nhostname = "GPU.org"\n[hosts.b]\nhostname = "gpu.org"'))
    assert "hosts.b is the same machine as hosts.a" in sentences[0]


def test_two_ports_of_one_address_are_two_machines():
    made = inventory('[hosts.a]\nhostname = "h"\nport = 1\n[hosts.b]\nhostname = "h"\nport = 2')
    assert len(made.hosts) == 2


@pytest.mark.parametrize(
    "line",
    ['hostname = "h"', 'user = "u"', "port = 22", 'identity_file = "k"', 'proxy_jump = "j"'],
)
def test_a_local_host_with_a_key_for_ssh_is_refused(line):
    sentences, _ = refusal(text(f'[hosts.a]\ntransport = "local"\n{line}'))
    key = line.split()[0]
    assert sentences == [f'hosts.a: {key} is an SSH key, and transport = "local" uses no SSH']


# Written again


STRINGS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
AWKWARD = st.sampled_from(
    [
        '"', "'", "\\", "\\x41", "\\u0041", "$(reboot)", "`id`", "${HOME}", "a b", "\n", "\r\n",
        "\t", "\x01\x1b[31m", "\x7f", "\x85", "\u2028", "é", "漢字", "😀", "\ufeff", "#", '"""',
        "'''", "",
    ]
)  # fmt: skip
WRITTEN = STRINGS | AWKWARD
VARIABLES = st.dictionaries(st.from_regex(r"[A-Z_]{1,8}", fullmatch=True), WRITTEN, max_size=3)


def written_again(made):
    return inventories.parse(inventories.dump(made), made.file)


@given(st.lists(WRITTEN, min_size=1, max_size=4), VARIABLES)
def test_strings_survive_being_written(words, env):
    made = inventory('[hosts.a]\nps = 1\nenv = {A = "1"}')
    command = ("run", *words)
    training = made.training.model_copy(update={"command": command, "env": env})
    host = made.hosts[0].model_copy(update={"env": env})
    made = made.model_copy(update={"training": training, "hosts": (host,)})
    assert written_again(made) == made


@pytest.mark.parametrize(
    "hosts",
    [
        '[defaults]\nuser = "ada"\nenv = {A = "1"}\n[hosts.a]\nps = 1\n[hosts."b.c"]\nworkers = 2',
        '[hosts.a]\ngpus = [3, 1]\nworkers = "per-gpu"\nports = "5-9"\nchief = true',
        '[hosts.a]\ntransport = "local"\nevaluator = true\nworkers = 1\ngpus_per_worker = 0',
        '[hosts.a]\nps = 1\nports = "auto"\n[hosts.b]\nspare = true\nports = 7',
    ],
)
def test_hosts_survive_being_written(hosts):
    made = inventory(
        hosts,
        training='role = "flags"\nstop_grace_s = 2.5\nrole_env = {A = "{task}"}\nreplicas = 1',
        top='ssh_config = "x"\n[source]\nexclude = ["*.c"]\n[restart]\nexits = [3, "SIGKILL"]\n'
        "[restart.ps]\nattempts = 0",
    )
    assert written_again(made) == made


def test_ssh_keys_of_the_defaults_are_for_the_other_hosts():
    made = inventory(
        '[defaults]\nuser = "ada"\nport = 2200\n'
        '[hosts.here]\ntransport = "local"\n[hosts.there]\nworkers = 1'
    )
    assert [(host.user, host.port) for host in made.hosts] == [(None, None), ("ada", 2200)]


def test_what_was_left_out_is_left_out_again_so_that_a_job_still_follows_restart():
    made = written_again(inventory(top="[restart]\nattempts = 3\n[restart.ps]\ndelay_s = 7"))
    assert (made.restart.of("ps").attempts, made.restart.of("ps").delay_s) == (3, 7)
    assert (made.restart.of("chief").attempts, made.restart.of("chief").delay_s) == (3, 1)
