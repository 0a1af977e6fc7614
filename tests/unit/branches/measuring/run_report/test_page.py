"""The page: complete, self-contained, and nothing that a host says becomes markup."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from support.builders import make_run
from support.events import record, scalar_event, write
from support.finished import (
    ONE,
    START,
    TWO,
    change,
    facts_of,
    finished_run,
    write_history,
)

from tfdeploy.branches.measuring.run_report import page
from tfdeploy.branches.measuring.run_report.facts import gather
from tfdeploy.branches.measuring.run_report.summary import DifferenceRow
from tfdeploy.commands.status import RunStatus, TaskStatus
from tfdeploy.errors import Unreachable
from tfdeploy.release.by_products import is_by_product
from tfdeploy.shared.records import TaskReport
from unit.test_run import error_text

EVIL = (
    "</script></style><script>alert(1)</script><img src=x onerror=alert(1)>'\"{{7*7}}\x1b[2J\u202e"
)
VOID = {"meta", "link", "img", "br", "path", "rect", "use"}


class Page(HTMLParser):
    """The elements of a page, and its text. Fails on elements that are not closed."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.attributes, self.text, self._open = [], [], "", []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self._open.pop() == tag, self.getpos()

    def handle_data(self, data):
        self.text += data if "style" not in self._open else ""

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


def rendered(*runs):
    return Page(page.render([facts_of(run) for run in runs]))


def test_a_finished_run_is_shown_with_all_that_is_known_of_it(tmp_path):
    found = rendered(finished_run(tmp_path, name="wide", words=("--lr", "0.1")))
    for text in (
        "wide", ONE, "succeeded", "2026-01-01 00:00:00 UTC", "1m 00s", "1 ps, 2 workers", "GPU 0",
        "--lr 0.1", "f00d", "1 restart", "killed by SIGKILL; restart 1 of 10", "worker-1 trains",
        "checkpoints/model.ckpt-20.index",
        "steps/s",
        f"cp runs/{ONE}/hosts.toml hosts.{ONE}.toml",
    ):  # fmt: skip
        assert text in found.text


def test_the_page_needs_nothing_else_and_runs_no_script(tmp_path):
    found = rendered(finished_run(tmp_path), finished_run(tmp_path, TWO, losses=(3.0, 2.0)))
    names = {tag for tag, _ in found.elements}
    assert names.isdisjoint({"script", "iframe", "object", "embed", "img", "base", "form"})
    [policy] = [m["content"] for m in found.all("meta") if "http-equiv" in m]
    assert policy == "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    for _, attributes in found.elements:
        for name in ("href", "src", "xlink:href"):
            assert (attributes.get(name) or "#").startswith(("#", "data:"))
        assert not any(name.startswith("on") for name in attributes)


def test_a_page_is_no_part_of_a_release(tmp_path):
    file = tmp_path / "both.html"
    page.write(file, page.render([facts_of(finished_run(tmp_path))]))
    assert is_by_product(file)


def test_nothing_that_a_host_says_becomes_markup(tmp_path):
    run = finished_run(tmp_path, losses=())
    plain = rendered(run)
    for placement in run.plan.placements:
        task = placement.task.file_name
        (run.folder / "logs" / f"{task}.log").write_text(f"{EVIL}\n")
        write_history(run, task, change(0, "READY"),
                      change(9, "FAILED", reason=EVIL, cause=EVIL))  # fmt: skip
    write(run.folder / "events", record(scalar_event(1, START, **{EVIL: 1.0, "loss": 2.0})))
    (run.folder / "checkpoints" / EVIL.replace("/", "|")).write_text("x")
    reports = [TaskReport(str(p.task), "LOST", 1.0, None, None, 0, EVIL, EVIL, log=[EVIL])
               for p in run.plan.placements]  # fmt: skip
    tasks = zip(run.plan.placements, reports, strict=True)
    status = RunStatus(run, tuple(TaskStatus(p, r) for p, r in tasks), (Unreachable("a", EVIL),))
    text = page.render([gather(run, status)])
    found = Page(text)
    assert "alert(1)" in found.text
    assert {tag for tag, _ in found.elements} - {tag for tag, _ in plain.elements} <= {
        *("aside", "defs", "use", "clippath", "path", "g", "svg", "text", "figure", "figcaption"),
    }
    assert all(not a.get("onerror") for _, a in found.elements)
    assert "{{7*7}}" in found.text
    assert "\x1b" not in text and "\u202e" not in text


def test_the_names_of_the_users_own_files_are_escaped_too(tmp_path):
    run = replace(finished_run(tmp_path), words=(EVIL,), name="<b>x", release="<i>")
    assert "<b>" not in page.render([facts_of(run)])
    assert "<i>" not in page.render([facts_of(run)])


def test_secrets_are_hidden_in_every_part(tmp_path):
    run = finished_run(
        tmp_path, words=("--password", "swordfish"), training='env = { MY_TOKEN = "hunter2" }'
    )
    (run.folder / "logs" / "worker-0.log").write_text("using hunter2\n")
    write_history(run, "worker-1", change(0, "FAILED", reason="hunter2 is wrong"))
    text = page.render([facts_of(run)])
    assert "hunter2" not in text
    assert "swordfish" not in text
    assert "using (hidden)" in text


def test_what_is_missing_is_said(tmp_path):
    run = make_run(tmp_path, run_id=ONE)
    run.folder.mkdir(parents=True)
    text = rendered(run).text
    collect = f"tfdeploy collect --hosts {run.inventory.file}"
    assert f"Logs, events and histories were not collected yet: {collect}" in text
    assert "No history of the states of" in text
    assert "The hosts were not asked" in text
    assert "unknown" in text


def test_a_host_that_does_not_answer_and_the_states_of_the_others_are_shown(tmp_path):
    run = finished_run(tmp_path)
    write_history(run, "worker-1", change(0, "READY"))
    reports = {"worker:1": TaskReport("worker:1", "LOST", 5.0, None, None, 2, "its host restarted")}
    tasks = tuple(TaskStatus(p, reports.get(str(p.task))) for p in run.plan.placements)
    status = RunStatus(run, tasks, (Unreachable("a", "no route to host"),))
    found = Page(page.render([gather(run, status)]))
    assert "A host gave no report: a: no route to host" in found.text
    assert "LOST" in found.text
    assert "its host restarted" in found.text


def test_several_runs_are_compared_and_differences_marked(tmp_path):
    one = finished_run(tmp_path, name="base")
    two = finished_run(tmp_path, TWO, name="wide", words=("--lr", "1"), training="replicas = 1")
    found = rendered(one, two)
    table = found.text[found.text.index("What the runs were") :]
    assert re.search(r"training.replicas ≠\s*–\s*1", table)
    assert re.search(r"Words ≠\s*–\s*--lr 1", table)
    assert "Hosts ≠" not in table
    assert len([a for a in found.all("path") if a.get("class") in ("line0", "line1")]) == 2


def test_a_single_run_is_compared_with_the_last_one_that_succeeded(tmp_path):
    finished_run(tmp_path, name="good")
    failed = finished_run(tmp_path, TWO, name="bad")
    write_history(failed, "worker-0", change(60, "FAILED"))
    text = rendered(finished_run(tmp_path, "20260103-000000-cccc", training="replicas = 1")).text
    assert "Compared with the last run that succeeded, or else the one before it, good" in text
    assert "training.replicas ≠" in text


def test_the_page_has_what_was_not_committed_without_its_secrets(tmp_path, monkeypatch):
    monkeypatch.setenv("KEY", "s3cret-value")
    run = finished_run(tmp_path, training='secrets = ["KEY"]')
    diff = "--- a/train.py\n+++ b/train.py\n@@ -1 +1 @@\n-rate = 1\n+key = 's3cret-value' \x1b[2J\n"
    run = replace(run, source={"commit": "a" * 40, "branch": "main", "diff": diff})
    text = rendered(run).text
    assert f"{'a' * 12} on main, 1 file not committed" in text
    assert "-rate = 1" in text
    assert "s3cret-value" not in text
    assert "\x1b" not in text


def test_tables_and_pictures_can_be_read_aloud_and_reached_by_keyboard(tmp_path):
    found = rendered(finished_run(tmp_path), finished_run(tmp_path, TWO))
    assert len(found.all("caption")) == len(found.all("table")) > 4
    assert all(attributes.get("scope") in ("col", "row") for attributes in found.all("th"))
    pictures = [a for a in found.all("svg") if a.get("role") == "img"]
    assert pictures and all(picture["aria-label"] for picture in pictures)
    boxes = [a for a in found.all("div") if a.get("class") == "scroll"]
    assert boxes and all(box["tabindex"] == "0" and box["aria-label"] for box in boxes)
    assert [a["lang"] for a in found.all("html")] == ["en"]
    ids = [a["id"] for _, a in found.elements if "id" in a]
    assert len(ids) == len(set(ids))


def luminance(colour):
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("theme", [0, 1])
def test_colours_have_the_contrast_of_wcag_aa(theme):
    """4.5 for text, 3 for graphics. Source: WCAG 2.2, 1.4.3 and 1.4.11."""
    blocks = re.findall(r":root \{(.*?)\}", (page.TEMPLATES / page.STYLE).read_text(), re.S)
    colours = dict(re.findall(r"--([\w-]+): (#\w{6})", blocks[theme]))

    def contrast(a, b):
        high, low = sorted((luminance(colours[a]), luminance(colours[b])), reverse=True)
        return (high + 0.05) / (low + 0.05)

    for text in ("front", "muted", "link"):
        for back in ("back", "soft"):
            assert contrast(text, back) >= 4.5, (text, back)
    assert contrast("front", "mark") >= 4.5
    graphics = [name for name in colours if name.startswith("line-")]
    for name in (*graphics, "starting", "ready", "backoff", "failed", "stopped"):
        assert contrast(name, "back") >= 3, name


# Files


def test_the_page_replaces_an_older_one_and_only_its_user_can_read_it(tmp_path):
    file = tmp_path / "report.html"
    file.write_text("old")
    page.write(file, "new \udc80")
    assert file.read_text() == "new ?"
    assert file.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["report.html"]


def test_a_file_that_cannot_be_written_is_refused_before_the_work(tmp_path):
    assert "is a folder; expected a file" in error_text(lambda: page.check_file(tmp_path))
    absent = tmp_path / "absent" / "x.html"
    assert "there is no folder" in error_text(lambda: page.check_file(absent))


def test_a_broken_history_is_no_reason_for_no_report(tmp_path):
    run = finished_run(tmp_path)
    write_history(run, "ps-0", "junk", json.dumps({"at": "x", "state": "READY"}))
    assert "No history of the states of ps:0" in rendered(run).text


def write_pace(run, task, steps_per_s, other_cpus=0.0):
    lines = [
        {"at": START + at, "step": int(at * steps_per_s), "cpus": 8, "busy_s": at * other_cpus,
         "own_s": 0.0, "disk_wait_s": 0.0, "swapped_bytes": 0, "segments_sent": 0,
         "segments_resent": 0, "hot_s": 0.0, "stopped_s": 0.0, "gpu_problems": []}
        for at in (0.0, 300.0, 600.0)
    ]  # fmt: skip
    file = run.folder / "logs" / f"{task}.pace.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_slow_workers_come_first_with_what_is_different_on_their_hosts(tmp_path):
    run = finished_run(tmp_path)
    assert "Slow workers" not in rendered(run).text
    write_pace(run, "worker-0", 6.0)
    write_pace(run, "worker-1", 2.0, other_cpus=4.0)
    figure = "other programs use 4.0 CPUs (0.0 for the others)"
    assert page.view(facts_of(run)).paces == (
        DifferenceRow("worker:1", ("b", "2", "50%", "5m 00s", figure), True),
        DifferenceRow("worker:0", ("b", "6", "150%", "0s", "–"), False),
    )
    assert "Others wait" in rendered(run).text
