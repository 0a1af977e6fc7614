"""[hosts]: tables with brackets for several hosts, and tables that override them for one."""

from __future__ import annotations

import pytest
from support.builders import EXAMPLE_HINT, FILE, hosts_toml, make_inventory, refusal_of

from tfdeploy.agent import paths
from tfdeploy.config import inventory as inventories
from tfdeploy.config import toml_text
from tfdeploy.transfer.shared_directory import group_by_store

MANY = '[hosts."gpu[1-3]"]\nworkers = 2\n'


def hosts(lines):
    return {host.name: host for host in make_inventory(lines).hosts}


def refused(lines):
    messages, hint = refusal_of(hosts_toml(lines))
    assert hint == EXAMPLE_HINT
    return messages


def test_a_table_with_brackets_is_expanded_to_several_hosts():
    by_name = hosts(MANY)
    assert [*by_name] == ["gpu1", "gpu2", "gpu3"]
    assert {host.workers for host in by_name.values()} == {2}


def test_hosts_keep_the_order_of_their_first_table():
    lines = f"[hosts.gpu2]\nps = 1\n[hosts.a]\n{MANY}[hosts.z]"
    assert [*hosts(lines)] == ["gpu2", "a", "gpu1", "gpu3", "z"]


@pytest.mark.parametrize("before", [True, False])
def test_a_hosts_own_table_overrides_the_table_with_brackets(before):
    many = MANY + 'python = "p"\nenv = { A = "1", B = "1" }\n'
    own = '[hosts.gpu2]\nchief = true\npython = "q"\nenv = { B = "2" }\n'
    defaults = '[defaults]\npython = "d"\nuser = "ada"\nenv = { A = "0", C = "0" }\n'
    by_name = hosts(defaults + (own + many if before else many + own))
    one, other = by_name["gpu2"], by_name["gpu1"]
    assert (one.chief, one.python, one.workers, one.user) == (True, "q", 2, "ada")
    assert one.env == {"A": "1", "B": "2", "C": "0"}
    assert (other.chief, other.python, other.user) == (False, "p", "ada")
    assert other.env == {"A": "1", "B": "1", "C": "0"}


def test_hostname_and_address_are_expanded_along_with_the_name():
    lines = 'hostname = "g[08-10].lab"\naddress = "10.0.[0-2].1"\nuser = "ada"\n'
    by_name = hosts(MANY + lines)
    assert [host.hostname for host in by_name.values()] == ["g08.lab", "g09.lab", "g10.lab"]
    assert [host.address for host in by_name.values()] == ["10.0.0.1", "10.0.1.1", "10.0.2.1"]
    assert {host.user for host in by_name.values()} == {"ada"}


def test_an_expanded_address_needs_one_value_for_each_host():
    assert refused(MANY + 'address = "10.0.0.[1-4]"') == [
        "hosts.gpu[1-3].address: found 4 values in 10.0.0.[1-4]; expected 3, one for each host"
    ]


def test_one_hostname_for_several_hosts_is_refused_as_one_machine():
    assert refusal_of(hosts_toml(MANY + 'hostname = "lab"'))[0] == [
        "hosts.gpu2 is the same machine as hosts.gpu1 (lab port 22)"
    ]


def test_a_problem_in_a_table_with_brackets_is_reported_once():
    assert refused('[hosts."gpu[1-200]"]\nworkers = "all"\nps = -1') == [
        "hosts.gpu[1-200].ps: found -1; expected at least 0",
        'hosts.gpu[1-200].workers: found "all"; expected a count from 0 to 1024, or "per-gpu"',
    ]


def test_a_problem_is_reported_for_the_table_that_it_is_in():
    own = "[hosts.gpu2]\nchief = true\n"
    assert refused(own + MANY + "ps = -1") == ["hosts.gpu[1-3].ps: found -1; expected at least 0"]
    assert refused(own + "ps = -1\n" + MANY) == ["hosts.gpu2.ps: found -1; expected at least 0"]


def test_ssh_keys_of_a_table_with_brackets_do_not_apply_to_a_local_host():
    own = '[hosts.gpu2]\ntransport = "local"\naddress = "10.0.0.1"\n'
    by_name = hosts(own + MANY + 'user = "ada"\n')
    assert [(host.is_local, host.user) for host in by_name.values()] == [
        (True, None), (False, "ada"), (False, "ada")
    ]  # fmt: skip


def test_a_host_in_two_tables_with_brackets_is_refused():
    assert refused(f'{MANY}[hosts."gpu[2-9]"]') == [
        "hosts.gpu[2-9]: gpu2 is in hosts.gpu[1-3] already; expected it in one table with brackets"
    ]
    assert refused('[hosts."gpu[1-2,2]"]') == [
        "hosts.gpu[1-2,2]: gpu2 is in hosts.gpu[1-2,2] already; "
        "expected it in one table with brackets"
    ]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "gpu[4-1]",
            'hosts.gpu[4-1]: found [4-1]; expected numbers such as "gpu[01-16]" or "gpu[1-3,7]"',
        ),
        ("gpu[1-4", 'hosts.gpu[1-4: expected a "]" after the "["'),
    ],
)
def test_an_invalid_pattern_in_a_name_is_refused(name, message):
    assert message in refused(f'[hosts."{name}"]\nworkers = 1')


def test_the_hint_for_unquoted_brackets_says_to_quote_them():
    messages, hint = refusal_of(hosts_toml("[hosts.gpu[1-4]]\nworkers = 1"))
    assert messages[0].startswith("not valid TOML: ")
    assert hint == 'put a name with brackets in quotes: [hosts."gpu[01-16]"]'


def test_dump_names_every_host():
    inventory = make_inventory(MANY + 'address = "10.0.0.[1-3]"')
    assert inventories.parse(toml_text.write(inventory.to_toml()), FILE) == inventory


def test_host_in_a_directory_stands_for_the_hosts_name():
    by_name = hosts(f'[defaults]\ndirectory = "/nfs/{{host}}/tfdeploy"\n{MANY}')
    assert [host.root for host in by_name.values()] == [f"/nfs/gpu{n}/tfdeploy" for n in (1, 2, 3)]


def test_hosts_with_shared_fs_have_one_store_and_own_roots():
    by_name = hosts(f'[defaults]\nshared_fs = true\ndirectory = "/nfs/tfdeploy"\n{MANY}')
    assert {host.store for host in by_name.values()} == {"/nfs/tfdeploy"}
    assert by_name["gpu1"].root == f"/nfs/tfdeploy/{paths.OWN_ROOTS}/gpu1"
    assert by_name["gpu1"].task_python("p", "e") == "/nfs/tfdeploy/p/envs/e/bin/python"


def test_shared_fs_with_a_directory_for_each_host_is_refused():
    (message, *_) = refused(f'[defaults]\nshared_fs = true\ndirectory = "/nfs/{{host}}"\n{MANY}')
    assert "remove {host} or shared_fs" in message


def test_the_first_host_of_each_directory_with_shared_fs_receives():
    text = '[defaults]\nshared_fs = true\n[hosts.far]\nworkers = 1\ndirectory = "/far"\n'
    inventory = make_inventory(text + f"{MANY}[hosts.own]\nworkers = 1\nshared_fs = false\n")
    everywhere = [host.name for host in inventory.hosts]
    found = group_by_store(inventory, reversed(everywhere))
    assert found == {"far": [], "gpu1": ["gpu2", "gpu3"], "own": []}
    assert group_by_store(inventory, ["gpu3", "gpu2"]) == {"gpu2": ["gpu3"]}
