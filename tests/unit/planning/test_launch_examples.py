"""A large plan is checked and shown by one example of each job."""

from __future__ import annotations

from pathlib import Path

from support.builders import make_inventory

from tfdeploy.commands.intent import Intent
from tfdeploy.output.console import Console
from tfdeploy.output.plan_output import print_plan
from tfdeploy.planning import launch, placing
from tfdeploy.planning.roles import RunNames
from tfdeploy.release.snapshot import Release


def make_intent(workers):
    hosts = (f'[hosts.h{n}]\naddress = "10.0.{n // 250}.{n % 250}"' for n in range(workers))
    text = "[defaults]\nworkers = 1\nports = [2222, 2223]\n" + "\n".join(hosts)
    inventory = make_inventory(text.replace('"10.0.0.1"', '"10.0.0.1"\nps = 1'))
    plan = placing.make_plan_from_addresses(inventory)
    return Intent(inventory, plan, Release("f00d", Path("/source"), {}, {}), {}, {})


def test_the_examples_are_the_chief_and_the_first_task_of_each_other_job():
    intent = make_intent(3)
    assert sorted(each.task for each in intent.examples()) == ["ps:0", "worker:0"]
    every = {each.task: each for each in intent.launches()}
    assert all(every[each.task] == each for each in intent.examples())


def test_only_the_chosen_tasks_are_launched():
    intent = make_intent(3)
    chosen = intent.plan.placements[:2]
    names = RunNames("r", "f00d")
    some = launch.make(intent.inventory, intent.plan, names, "s", placements=chosen)
    assert some == launch.make(intent.inventory, intent.plan, names, "s")[:2]


def test_the_text_of_a_large_plan_does_not_grow_with_its_square(capsys):
    sizes = []
    for workers in (300, 3000):
        print_plan(Console(), make_intent(workers))
        sizes.append(len(capsys.readouterr().out))
    assert sizes[1] < 1.2 * sizes[0]


def test_a_plan_of_a_few_tasks_shows_every_command(capsys):
    print_plan(Console(), make_intent(3))
    output = capsys.readouterr().out
    assert output.count("  $ ") == 4
    assert "more task" not in output


def test_a_large_plan_says_how_many_tasks_it_leaves_out(capsys):
    print_plan(Console(), make_intent(300))
    output = capsys.readouterr().out
    assert "and 101 more tasks" in output
    assert (
        "one task of each job, as an example: env, python and GPUs of others may differ"
        in " ".join(output.split())
    )
    assert output.count("  $ ") == 2
