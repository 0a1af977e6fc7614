"""The training algorithms: their arithmetic, and each one run through tfdeploy on this machine."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from examples.recipes import EXAMPLES, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ARITHMETIC = Path(__file__).parent / "scripts" / "arithmetic.py"
ROUNDING = 1e-6  # A single forgotten gradient changes some weight by a thousand times as much.

NET = [f"{layer}/{part}" for layer in ("convolution_1", "convolution_2", "dense")
       for part in ("bias", "kernel")]  # fmt: skip
ADAGRAD = [f"{name}/Adagrad" for name in NET]


@pytest.fixture(scope="module")
def arithmetic():
    """What two workers computed in their first batches, beside the same formula in NumPy."""
    environment = os.environ | {
        "PYTHONPATH": str(EXAMPLES), "PYTHONDONTWRITEBYTECODE": "1", "CUDA_VISIBLE_DEVICES": "-1"
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, ARITHMETIC], env=environment, capture_output=True, text=True, timeout=250
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    "check",
    [
        "hogwild_is_sgd",
        "downpour_sgd_with_window_1_is_sgd",
        "downpour_keeps_a_window_to_itself",
        "downpour_loses_no_push",
        "downpour_forgets_what_it_pushed",
        "downpour_adagrad",
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
        ("downpour", NET + ADAGRAD, ["accrued", "own"]),
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
    done = run("downpour", tmp_path, hosts=hosts)
    assert_learned(done, serial)
    assert_own_copies(done)


@pytest.mark.parametrize("recipe", ["adag", "dynsgd", "aeasgd", "aeamsgd"])
def test_a_window_of_ones_own_learns(recipe, serial, tmp_path):
    done = run(recipe, tmp_path)
    assert_learned(done, serial)
    assert_own_copies(done)


def test_hogwild_learns(serial, tmp_path):
    done = run("hogwild", tmp_path)
    assert_learned(done, serial)
    assert "weights on /job:ps/task:0\n" in done.log("worker:0")


def test_ssgd_learns_and_all_leave_after_the_same_round(serial, tmp_path):
    done = run("ssgd", tmp_path)
    assert_learned(done, serial, together=True)
    assert "weights on /job:ps/task:0\n" in done.log("worker:0")
    assert [ending(done, worker) for worker in (0, 1)] == [(600, 300), (600, 300)]


def test_sagn_learns_and_all_leave_after_the_same_round(serial, tmp_path):
    done = run("sagn", tmp_path)
    assert_learned(done, serial, together=True)
    assert_own_copies(done)
    assert [ending(done, worker) for worker in (0, 1)] == [(600, 300), (600, 300)]


def assert_learned(done, serial, together=False):
    other = done.tasks["worker:1"]
    assert done.tasks == {"ps:0": "STOPPED", "worker:0": "SUCCEEDED", "worker:1": other}
    # An asynchronous chief waits for nobody: who is late is stopped once it has ended.
    assert other == "SUCCEEDED" or (other == "STOPPED" and not together)
    assert done.accuracy() >= serial.accuracy() - 0.1  # The busier the machine, the staler.
    for worker in (0, 1) if other == "SUCCEEDED" else (0,):
        assert ending(done, worker)[0] >= 600


def assert_own_copies(done):
    for worker in (0, 1):
        places = f"weights on /job:ps/task:0, own copy on /job:worker/task:{worker}\n"
        assert places in done.log(f"worker:{worker}")


def ending(done, worker):
    """The step that a worker stopped at, and how many batches it had computed itself."""
    last = done.log(f"worker:{worker}").splitlines()[-1]
    return tuple(map(int, re.fullmatch(r"stopped at step (\d+) after (\d+) .*", last).groups()))


def test_rates_for_another_number_of_workers_are_refused_in_one_sentence(tmp_path):
    role = ["--job_name=worker", "--task_index=0", "--ps_hosts=a:1", "--worker_hosts=b:1,c:1"]
    done = subprocess.run(
        [sys.executable, "-m", "ssgd.train", *role, "--learning_rates=0.3,0.2,0.1"],
        cwd=EXAMPLES, capture_output=True, text=True, timeout=100,
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "--learning_rates=0.3,0.2,0.1 are 3 rates for 2 workers: give one for each, or one for all"
    )
