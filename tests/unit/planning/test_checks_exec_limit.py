"""A cluster that is too large for TF_CONFIG or for the flags is refused before anything starts."""

from __future__ import annotations

import pytest
from support.builders import make_inventory, make_plan

from tfdeploy.errors import PlanError
from tfdeploy.planning import checks, launch
from tfdeploy.planning.checks import MAX_BYTES, SPARE_BYTES
from tfdeploy.planning.roles import RunNames

NAMES = RunNames("run-1", "f00d")
ADDRESS = 'address = "10.0.{}.{}"\n'
LOWER = 1 << 13
ONE = len('"10.0.100.100:2222", ')


def hosts(count):
    """Return hosts with addresses of equal length."""
    addresses = (ADDRESS.format(100 + n // 100, 100 + n % 100) for n in range(count))
    return "\n".join(f"[hosts.n{n:05}]\n{a}workers = 1" for n, a in enumerate(addresses))


def chief_launch(count, training=""):
    """Return the launch of the chief, of as many workers."""
    plan, inventory = make_plan(hosts(count)), make_inventory(hosts(count), training=training)
    return launch.make(inventory, plan, NAMES, "s3cret", {}, [plan.chief])[0]


def tf_config_bytes(count):
    return len(f"TF_CONFIG={chief_launch(count).process.env['TF_CONFIG']}")


@pytest.fixture
def lower_limit(monkeypatch):
    """Make clusters of some hundred tasks too large, instead of 6,000."""
    monkeypatch.setattr(checks, "MAX_BYTES", LOWER)


@pytest.fixture
def accepted(lower_limit):
    """Return the number of tasks of the largest cluster that is accepted."""
    return 100 + (LOWER - SPARE_BYTES - tf_config_bytes(100)) // ONE


def test_the_largest_cluster_is_accepted(accepted):
    assert LOWER - SPARE_BYTES - ONE < tf_config_bytes(accepted) <= LOWER


def test_a_larger_cluster_is_refused_in_one_sentence(accepted):
    with pytest.raises(PlanError) as refused:
        chief_launch(accepted + 1)
    size = tf_config_bytes(100) + (accepted + 1 - 100) * ONE
    assert str(refused.value).splitlines()[0] == (
        f"TF_CONFIG of worker:0 has {size:,} bytes with the addresses of {accepted + 1:,} tasks; "
        f"Linux passes at most {LOWER:,} bytes to a program in one argument or variable"
    )


def test_a_long_variable_of_the_user_is_not_blamed_on_the_number_of_tasks():
    with pytest.raises(PlanError) as refused:
        chief_launch(2, f'env = {{ WORDS = "{"a" * MAX_BYTES}" }}')
    assert "WORDS of worker:0 has 131,077 bytes; Linux passes at most" in str(refused.value)
    assert "tasks" not in str(refused.value)


def test_a_long_argument_is_refused_by_the_name_of_its_flag(lower_limit):
    with pytest.raises(PlanError, match=r"^--all of worker:0 has"):
        chief_launch(300, 'role_args = ["--all={worker_hosts},{worker_hosts}"]')
