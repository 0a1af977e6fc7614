"""`tfdeploy report` of a real run: its supervisors keep the history, and collect fetches it."""

from __future__ import annotations

import json
import os
import shutil
import signal
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from support.browser import Chromium
from support.finished import ONE, START, TWO, change, facts_of, finished_run
from support.finished import write_history as history_of
from support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from .conftest import World

SECRET = "hunter2-is-the-token"


def states(run_folder: Path, task: str) -> list[str]:
    lines = (run_folder / "logs" / f"{task}.history.jsonl").read_text().splitlines()
    return [each["state"] for each in map(json.loads, lines) if "state" in each]


def test_a_restart_is_in_the_report_and_hosts_need_not_answer_for_it(by_ssh: World) -> None:
    project = by_ssh.started("--hold", training={"env": {"MY_TOKEN": SECRET}})
    os.kill(project.status()["worker:1"]["pid"], signal.SIGKILL)
    until(lambda: project.status()["worker:1"]["restarts"] == 1, "a restart")
    until(lambda: project.status()["worker:1"]["state"] == "READY", "READY again")

    before = project.run_folder / "before.html"
    project.ok("report", "-o", str(before))  # nothing was collected: the hosts answer
    assert "Logs, events and histories were not collected yet" in before.read_text()
    assert "worker:1 starts" in before.read_text()

    project.ok("stop")
    project.ok("collect")
    seen = states(project.run_folder, "worker-1")
    assert seen[:3] == ["STARTING", "RUNNING", "READY"]
    assert seen[3:] == ["BACKOFF", "RUNNING", "READY", "STOPPED"]

    for host in project.hosts:
        shutil.rmtree(project.on(host))
    assert project.ok("report", "--offline") == f"{project.run_folder / 'report.html'}\n"
    page = (project.run_folder / "report.html").read_text()
    assert "killed by SIGKILL; restart 1 of 10" in page
    assert "stopped" in page
    assert SECRET not in page
    assert "<script" not in page


@pytest.mark.slow
def test_the_use_of_gpus_is_kept_without_a_watch(local: World, monkeypatch, tmp_path) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text(
        "#!/bin/sh\n"
        'case "$*" in -L) echo "GPU 0: A (UUID: GPU-0a)"; echo "GPU 1: A (UUID: GPU-0b)" ;;\n'
        '*--id=0) echo "0, 97, 1024, 2048" ;; *--id=1) echo "1, 42, 1024, 2048" ;; esac\n'
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    hosts = {name: {**keys, "gpus": 2} for name, keys in local.hosts().items()}
    project = local.started("--hold", hosts=hosts)

    def is_kept() -> bool:
        project.ok("collect")
        return len([*project.run_folder.glob("logs/*.gpus.jsonl")]) == 2

    until(is_kept, "a sample of each worker")
    project.ok("report", "--offline")
    page = (project.run_folder / "report.html").read_text()
    assert "worker:0: from 97 to 97" in page
    assert "worker:1: from 42 to 42" in page
    assert "No use of GPUs" not in page


def test_a_wrong_argument_writes_nothing(by_ssh: World) -> None:
    project = by_ssh.started("--hold")
    refused = project.tf("report", "nothing", "--offline")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert 'there is no run "nothing"' in refused.stderr
    assert project.tf("report", "-o", "absent/x.html").returncode == 2
    assert not list(project.folder.rglob("*.html"))


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with Chromium(tmp_path_factory.mktemp("browser")) as started:
        yield started


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of two runs, with a log and a reason that try to be markup."""
    folder = tmp_path_factory.mktemp("page")
    evil = (
        "<script>alert(1)</script><img src=http://127.0.0.1:9/x onerror=alert(1)>"
        "<a href=javascript:alert(1)>x</a>\u202e" + "long" * 100
    )
    hosts = (
        "[hosts.a-host-with-a-rather-long-name]\nps = 1\n"
        "[hosts.b]\nworkers = 2\ngpus = 2\ngpus_per_worker = 1"
    )
    one, two = (
        finished_run(folder, run_id, hosts=hosts, name=name, words=("--lr", name * 30))
        for run_id, name in ((ONE, "base"), (TWO, "wide"))
    )
    (one.folder / "logs" / "worker-0.log").write_text(f"{evil}\n" * 40)
    history_of(one, "worker-1", change(0, "READY"), change(9, "FAILED", reason=evil))
    one = replace(
        one, source=dict.fromkeys(("branch", "commit", "diff"), f"+{evil}"), words=(evil,)
    )
    row = {"at": START + 9, "gpus": [[0, 97, 1024, 81920]]}
    (one.folder / "logs" / "worker-0.gpus.jsonl").write_text(json.dumps(row))
    from tfdeploy.branches.measuring.run_report import page

    written = folder / "report.html"
    page.write(written, page.render([facts_of(one), facts_of(two)]))
    return written


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1400])
def test_a_browser_shows_the_page_and_asks_for_nothing_else(browser, file, width, scheme) -> None:
    browser.open(file.as_uri(), width=width, scheme=scheme)
    assert browser.evaluate("document.querySelectorAll('.chart div svg').length") == 3
    assert browser.requests == [file.as_uri()]
    assert browser.problems == []
    links = "[...document.querySelectorAll('[href]')].map(each => each.getAttribute('href'))"
    assert all(link.startswith(("#", "data:,")) for link in browser.evaluate(links))
    sizes = "[document.documentElement.scrollWidth, window.innerWidth]"
    content, window = browser.evaluate(sizes)
    assert content <= window == width
    colours = "getComputedStyle(document.body).backgroundColor"
    dark = "rgb(15, 20, 26)"
    assert (browser.evaluate(colours) == dark) == (scheme == "dark")
    outside = """[...document.querySelectorAll('body *')].filter(each =>
        !each.closest('.scroll, .skip, pre, svg') &&
        each.getBoundingClientRect().right > innerWidth + 1).map(each => each.outerHTML)"""
    assert browser.evaluate(outside) == []


@pytest.mark.slow
def test_a_browser_refuses_what_a_page_would_load_from_elsewhere(tmp_path, browser) -> None:
    """The policy holds even if a part of a page were markup: the counterpart of the test above."""
    from tfdeploy.branches.measuring.run_report import page

    text = page.render([facts_of(finished_run(tmp_path))])
    evil = "<img src='http://127.0.0.1:9/x'><script>document.title = 'evil'</script>"
    file = tmp_path / "report.html"
    file.write_text(text.replace("</main>", f"{evil}</main>"))
    browser.open(file.as_uri(), width=1400, scheme="light")
    assert browser.problems
    assert browser.evaluate("document.title") != "evil"
