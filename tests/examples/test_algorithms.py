"""The training algorithms: their arithmetic, and each one trained on this machine."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from support import warm
from support.ports import free_addresses
from support.recipes import EXAMPLES

from examples.forks import train

pytestmark = pytest.mark.slow

ARITHMETIC = Path(__file__).parent / "scripts" / "arithmetic.py"
CENTRE = re.compile(r"^centre at step (\d+) loss (\S+) after", re.MULTILINE)
ROUNDING = 1e-6  # A single forgotten gradient changes some weight by a thousand times as much.

NET = [f"{layer}/{part}" for layer in ("convolution_1", "convolution_2", "dense")
       for part in ("bias", "kernel")]  # fmt: skip
ADAGRAD = [f"{name}/Adagrad" for name in NET]


@pytest.fixture(scope="module")
def arithmetic():
    """Return what two workers computed in their first batches, and the same formula in NumPy."""
    done = warm.run(ARITHMETIC, *free_addresses(4), cwd=EXAMPLES, PYTHONPATH=str(EXAMPLES))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    "check",
    [
        "hogwild_is_sgd",
        "downpour_sgd_with_window_1_is_sgd",
        "downpour_keeps_a_window_to_itself",
        "downpour_loses_no_push",
        "downpour_forgets_what_it_pushed",
        "downpour_adagrad",
        "downpour_adagrad_on_the_worker",
        "downpour_pushes_and_fetches_separately",
        "adag_pushes_the_mean",
        "sagn_applies_the_mean_of_all",
        "ssgd_with_differing_rates",
        "one_worker_alone_needs_no_ps",
        "dynsgd_divides_by_staleness",
        "dynsgd_counts_none_of_its_own",
        "aeasgd_moves_both_ends",
        "aeamsgd_rolls_on",
        "a_copy_begins_where_the_central_weights_are",
    ],
)
def test_the_weights_are_what_the_formula_gives(arithmetic, check):
    assert arithmetic["differences"][check] < ROUNDING


@pytest.mark.parametrize(
    ("recipe", "saved", "not_saved"),
    [
        ("downpour", NET + ADAGRAD, ["accrued", "own", "sent"]),
        ("adag", NET, ["accrued", "own"]),
        ("sagn", NET, ["accrued", "own"]),
        ("dynsgd", [*NET, "pushes"], ["accrued", "own", "pulled_at"]),
        ("aeasgd", NET, ["own"]),
        ("aeamsgd", NET, ["own", "velocity"]),
    ],
)
def test_the_centre_is_saved_on_the_ps_and_a_copy_is_its_workers(
    arithmetic, recipe, saved, not_saved
):
    assert arithmetic["places"][recipe] == {
        "saved": sorted([*saved, "global_step"]),
        "saved on": ["/job:ps/task:0"],
        "not saved": not_saved,
        "not saved on": ["/job:worker/task:0"],
        "takes part within a window": [["worker", 0]],
    }


@pytest.mark.parametrize("hosts", ["hosts.toml", "hosts.sgd.toml"])
def test_downpour_learns(hosts, serial, tmp_path):
    done = train("downpour", tmp_path, hosts=hosts)
    assert_learned(done, serial)
    assert_own_copies(done)


def test_downpour_learns_with_background_pushes_and_adagrad_on_the_workers(serial, tmp_path):
    words = ("--push=background", "--local=adagrad", "--n_push=5", "--n_fetch=10")
    done = train("downpour", tmp_path, words=words)
    assert_learned(done, serial)
    assert_own_copies(done)


def test_the_centre_is_measured_by_the_chief_alone(tmp_path):
    done = train("adag", tmp_path, words=("--measure_every=100", "--net=dense", "--steps=400"))
    measured = CENTRE.findall(done.log("worker:0"))
    steps = [int(step) for step, _ in measured]
    assert steps == sorted(steps)
    assert steps[-1] >= 400
    assert float(measured[-1][1]) < float(measured[0][1])
    assert not CENTRE.search(done.log("worker:1"))


@pytest.mark.parametrize("recipe", ["adag", "dynsgd", "aeasgd", "aeamsgd"])
def test_a_worker_with_its_own_copy_learns(recipe, serial, tmp_path):
    done = train(recipe, tmp_path)
    assert_learned(done, serial)
    assert_own_copies(done)


def test_hogwild_learns(serial, tmp_path):
    done = train("hogwild", tmp_path)
    assert_learned(done, serial)
    assert "weights on /job:ps/task:0\n" in done.log("worker:0")


def test_ssgd_learns_and_all_workers_stop_after_the_same_round(serial, tmp_path):
    done = train("ssgd", tmp_path)
    assert_learned(done, serial)
    assert "weights on /job:ps/task:0\n" in done.log("worker:0")
    assert {stopped_at(done, worker) for worker in done.ended_workers()} == {(600, 300)}


def test_sagn_learns_and_all_workers_stop_after_the_same_round(serial, tmp_path):
    done = train("sagn", tmp_path)
    assert_learned(done, serial)
    assert_own_copies(done)
    assert {stopped_at(done, worker) for worker in done.ended_workers()} == {(600, 300)}


def assert_learned(done, serial):
    other = done.tasks["worker:1"]
    assert done.tasks == {"ps:0": "STOPPED", "worker:0": "SUCCEEDED", "worker:1": other}
    # A chief does not wait for the others to exit: one that is late is stopped.
    assert other in ("SUCCEEDED", "STOPPED")
    # The busier the machine, the older the gradients: 0.14 less was seen. Chance is 0.1.
    assert done.accuracy() >= serial.accuracy() - 0.28
    for worker in done.ended_workers():
        assert stopped_at(done, worker)[0] >= 600


def assert_own_copies(done):
    for worker in done.ended_workers():
        places = f"weights on /job:ps/task:0, own copy on /job:{worker.replace(':', '/task:')}\n"
        assert places in done.log(worker)


def stopped_at(done, worker):
    """Return the step at which a worker stopped, and the number of batches that it computed."""
    last = done.log(worker).splitlines()[-1]
    found = re.fullmatch(r"stopped at step (\d+) in .*, own steps: (\d+)", last)
    return tuple(map(int, found.groups()))


def test_rates_for_another_number_of_workers_are_refused_in_one_sentence(tmp_path):
    role = ["--job_name=worker", "--task_index=0", "--ps_hosts=a:1", "--worker_hosts=b:1,c:1"]
    done = warm.run("-m", "ssgd.train", *role, "--learning_rates=0.3,0.2,0.1", cwd=EXAMPLES)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "--learning_rates=0.3,0.2,0.1 are 3 rates for 2 workers: give one for each, or one for all"
    )
