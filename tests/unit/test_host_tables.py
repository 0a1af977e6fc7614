"""[hosts]: a table for many that are alike, and what one of them has for itself."""

from __future__ import annotations

import pytest

from tfdeploy import inventory as inventories
from unit.made import FILE, HINT, inventory, refusal, text

MANY = '[hosts."gpu[1-3]"]\nworkers = 2\n'


def hosts(lines):
    return {host.name: host for host in inventory(lines).hosts}


def refused(lines):
    sentences, hint = refusal(text(lines))
    assert hint == HINT
    return sentences


def test_a_table_may_name_many_that_are_alike():
    made = hosts(MANY)
    assert [*made] == ["gpu1", "gpu2", "gpu3"]
    assert {host.workers for host in made.values()} == {2}


def test_they_stand_where_the_file_first_names_them():
    lines = f"[hosts.gpu2]\nps = 1\n[hosts.a]\n{MANY}[hosts.z]"
    assert [*hosts(lines)] == ["gpu2", "a", "gpu1", "gpu3", "z"]


@pytest.mark.parametrize("before", [True, False])
def test_one_of_them_may_have_more_in_a_table_of_its_own(before):
    many = MANY + 'python = "p"\nenv = { A = "1", B = "1" }\n'
    own = '[hosts.gpu2]\nchief = true\npython = "q"\nenv = { B = "2" }\n'
    defaults = '[defaults]\npython = "d"\nuser = "ada"\nenv = { A = "0", C = "0" }\n'
    made = hosts(defaults + (own + many if before else many + own))
    one, other = made["gpu2"], made["gpu1"]
    assert (one.chief, one.python, one.workers, one.user) == (True, "q", 2, "ada")
    assert one.env == {"A": "1", "B": "2", "C": "0"}
    assert (other.chief, other.python, other.user) == (False, "p", "ada")
    assert other.env == {"A": "1", "B": "1", "C": "0"}


def test_names_and_addresses_are_given_in_turn():
    lines = 'hostname = "g[08-10].lab"\naddress = "10.0.[0-2].1"\nuser = "ada"\n'
    made = hosts(MANY + lines)
    assert [host.hostname for host in made.values()] == ["g08.lab", "g09.lab", "g10.lab"]
    assert [host.address for host in made.values()] == ["10.0.0.1", "10.0.1.1", "10.0.2.1"]
    assert {host.user for host in made.values()} == {"ada"}


def test_there_must_be_as_many_of_them_as_hosts():
    assert refused(MANY + 'address = "10.0.0.[1-4]"') == [
        "hosts.gpu[1-3].address: found 4 in 10.0.0.[1-4], expected one for each of the 3 hosts"
    ]


def test_one_hostname_for_all_is_one_machine():
    assert refusal(text(MANY + 'hostname = "lab"'))[0] == [
        "hosts.gpu2 is the same machine as hosts.gpu1 (lab port 22)"
    ]


def test_what_is_wrong_of_many_is_said_once():
    assert refused('[hosts."gpu[1-200]"]\nworkers = "all"\nps = -1') == [
        "hosts.gpu[1-200].ps: found -1; it should be greater than or equal to 0",
        'hosts.gpu[1-200].workers: found "all"; expected a count from 0 to 1024, or "per-gpu"',
    ]


def test_what_is_wrong_of_many_is_not_said_of_one_that_has_more():
    own = "[hosts.gpu2]\nchief = true\n"
    assert refused(own + MANY + "ps = -1") == [
        "hosts.gpu[1-3].ps: found -1; it should be greater than or equal to 0"
    ]
    assert refused(own + "ps = -1\n" + MANY) == [
        "hosts.gpu2.ps: found -1; it should be greater than or equal to 0"
    ]


def test_ssh_keys_of_many_are_not_meant_for_one_that_is_local():
    own = '[hosts.gpu2]\ntransport = "local"\naddress = "10.0.0.1"\n'
    made = hosts(own + MANY + 'user = "ada"\n')
    assert [(host.is_local, host.user) for host in made.values()] == [
        (True, None), (False, "ada"), (False, "ada")
    ]  # fmt: skip


def test_a_host_is_among_many_but_once():
    assert refused(f'{MANY}[hosts."gpu[2-9]"]') == [
        "hosts.gpu[2-9]: gpu2 is in hosts.gpu[1-3] already"
    ]
    assert refused('[hosts."gpu[1-2,2]"]') == [
        "hosts.gpu[1-2,2]: gpu2 is in hosts.gpu[1-2,2] already"
    ]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (
            "gpu[4-1]",
            'hosts.gpu[4-1]: found [4-1], expected numbers as in "gpu[01-16]" or "gpu[1-3,7]"',
        ),
        ("gpu[1-4", 'hosts.gpu[1-4: expected a "]" behind the "["'),
    ],
)
def test_a_name_that_is_no_range_is_refused(name, sentence):
    assert sentence in refused(f'[hosts."{name}"]\nworkers = 1')


def test_a_range_without_quotes_is_told_to_have_some():
    sentences, hint = refusal(text("[hosts.gpu[1-4]]\nworkers = 1"))
    assert sentences[0].startswith("not TOML: ")
    assert hint == 'a name with brackets stands in quotes: [hosts."gpu[01-16]"]'


def test_the_record_of_a_run_names_every_host():
    made = inventory(MANY + 'address = "10.0.0.[1-3]"')
    assert inventories.parse(inventories.dump(made), FILE) == made


def test_a_directory_that_many_see_can_differ_by_host():
    made = hosts(f'[defaults]\ndirectory = "/nfs/{{host}}/tfdeploy"\n{MANY}')
    assert [host.root for host in made.values()] == [f"/nfs/gpu{n}/tfdeploy" for n in (1, 2, 3)]
