"""The live view, driven by Textual's pilot at the size of a terminal."""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager

import pytest

from tfdeploy.branches.live import summary
from tfdeploy.branches.live.app import WatchApp
from tfdeploy.branches.live.watched_run import Ending
from tfdeploy.errors import Unreachable
from tfdeploy.output.log_lines import coloured
from unit.branches.live.samples import keras, sample, task_use, watched_run

FLEET = '[hosts."w[001-200]"]\nworkers = 1'


class Clock:
    """A controller's clock that stands still."""

    now = 100.0

    def __call__(self):
        return self.now


def held(*events):
    """Yield events, then none, as a run that continues."""
    yield from events
    threading.Event().wait(60)


def screen(app):
    """Return the lines that the terminal shows."""
    width = app.size.width
    return [
        "".join(s.text for s in line)[:width].rstrip()
        for line in app.screen._compositor.render_strips()
    ]


@asynccontextmanager
async def shown(watched, size=(80, 24)):
    app = WatchApp(watched, held(), Clock())
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        yield app, pilot


async def settle(pilot):
    pilot.app.refresh_view()
    await pilot.pause()
    await pilot.pause()


def in_view(scenario, watched=None, **more):
    """Run `scenario(app, pilot)` in a view of a run with two hosts."""

    async def run():
        async with shown(watched or two_hosts(), **more) as (app, pilot):
            await scenario(app, pilot)

    asyncio.run(run())


def two_hosts():
    watched = watched_run()
    numbered = {f"worker:{n}": [f"worker:{n} line {i}" for i in range(100)] for n in (0, 1)}
    watched.take("p", sample(task_use("ps:0"), logs={"ps:0": ["serving"]}), 99.0)
    tasks = [task_use("worker:0", log_progress=keras(3, 20)), task_use("worker:1")]
    watched.take("w", sample(*tasks, logs=numbered), 99.0)
    return watched


def text_of(app):
    return "\n".join(screen(app))


@pytest.mark.parametrize("size", [(80, 24), (120, 24), (120, 50), (200, 60)])
def test_the_view_fills_the_terminal_from_the_run_to_the_keys(size):
    async def scenario(app, pilot):
        lines = screen(app)
        assert len(lines) == size[1]
        assert max(map(len, lines)) <= size[0]
        assert "3 tasks on 2 hosts: 3 READY" in lines[0]
        assert lines[1].startswith("epoch 3/10, batch 20/100  loss 0.5")
        assert lines[2].split()[:3] == ["HOST", "TASK", "STATE"]
        assert "worker:0 line 99" in lines[-2]
        assert lines[-1].startswith("arrows or 1-9: task")

    in_view(scenario, size=size)


def test_the_training_is_one_line_and_its_last_parts_are_left_out(monkeypatch):
    parts = [f"part {number} of thirty characters" for number in range(4)]
    monkeypatch.setattr(summary, "training_parts", lambda watched, now: parts)

    async def scenario(app, pilot):
        lines = screen(app)
        assert lines[1] == "  ".join(parts[:2])
        assert lines[2].split()[:3] == ["HOST", "TASK", "STATE"]

    in_view(scenario, size=(80, 24))


def test_the_log_is_the_chiefs_until_another_task_is_chosen():
    async def scenario(app, pilot):
        assert "── worker:0 on w, log" in text_of(app)
        for key, task, line in (
            ("down", "worker:1 on w", "worker:1 line 99"), ("1", "ps:0 on p", "serving"),
            ("up", "ps:0 on p", "serving"), ("down", "worker:0 on w", "worker:0 line 99"),
            ("3", "worker:1 on w", "worker:1 line 99"), ("9", "worker:1 on w", "worker:1 line 99"),
        ):  # fmt: skip
            await pilot.press(key)
            await settle(pilot)
            assert f"── {task}, log" in text_of(app), key
            assert line in text_of(app), key

    in_view(scenario)


def test_a_log_that_was_scrolled_stays_where_it_is_while_it_grows():
    watched = two_hosts()

    async def scenario(app, pilot):
        await pilot.press("pageup", "pageup")
        await settle(pilot)
        assert "worker:0 line 99" not in text_of(app)
        before = screen(app)[-5:-1]
        watched.take("w", sample(logs={"worker:0": ["new line"]}), 100.0)
        await settle(pilot)
        assert screen(app)[-5:-1] == before
        await pilot.press("end")
        await settle(pilot)
        assert "new line" in text_of(app)

    in_view(scenario, watched)


def test_new_lines_are_followed_and_none_is_shown_twice():
    watched = two_hosts()

    async def scenario(app, pilot):
        for number in range(3):
            watched.take("w", sample(logs={"worker:0": [f"new line {number}"]}), 100.0)
            await settle(pilot)
        assert [line for line in screen(app) if line.startswith("new")] == [
            "new line 0", "new line 1", "new line 2",
        ]  # fmt: skip

    in_view(scenario, watched)


def test_escape_sequences_of_a_log_never_reach_the_terminal():
    watched = two_hosts()
    watched.take("w", sample(logs={"worker:0": ["a\x1b]0;title\x07b\x1b[2Jc\x9b1m"]}), 100.0)

    async def scenario(app, pilot):
        assert not any(set(line) & {"\x1b", "\x07", "\x9b"} for line in screen(app))
        assert "\\x1b]0;title\\x07b" in text_of(app)

    in_view(scenario, watched)


def test_the_colours_of_a_script_are_kept():
    text = coloured("\x1b[31mred\x1b[0m plain")
    assert text.plain == "red plain"
    assert [str(span.style) for span in text.spans] == ["color(1)"]


@pytest.mark.parametrize(("key", "ending"), [("q", Ending.QUIT), ("ctrl+c", Ending.INTERRUPTED)])
def test_a_key_quits_and_says_whether_it_was_ctrl_c(key, ending):
    async def run():
        app = WatchApp(two_hosts(), held(), Clock())
        async with app.run_test() as pilot:
            await pilot.press(key)
        return app.return_value

    assert asyncio.run(run()) is ending


def test_the_view_leaves_by_itself_when_it_is_over():
    over = threading.Event()

    async def run():
        app = WatchApp(two_hosts(), held(), Clock(), is_over=over.is_set)
        async with app.run_test() as pilot:
            await settle(pilot)
            over.set()
            while app.is_running:
                await asyncio.sleep(0.05)
        return app.return_value

    assert asyncio.run(run()) is Ending.OVER


def test_events_are_taken_while_the_view_is_shown():
    watched = watched_run()
    event = ("w", sample(task_use("worker:0"), logs={"worker:0": ["it came"]}))

    async def run():
        app = WatchApp(watched, held(event), Clock())
        async with app.run_test(size=(80, 24)) as pilot:
            while watched.tasks["worker:0"].report is None:
                await pilot.pause(0.01)
            await settle(pilot)
            assert "it came" in text_of(app)

    asyncio.run(run())


def test_a_host_that_is_away_says_since_when():
    watched = two_hosts()
    watched.take("p", Unreachable("p", "no answer within 30 s"), 40.0)

    async def scenario(app, pilot):
        [row] = [line for line in screen(app) if "AWAY" in line and line.split()[0] == "p"]
        assert row.split()[1:] == ["AWAY", "1m", "00s"]
        assert "no answer within 30 s" in text_of(app)
        old = app._table(100).split("\n")
        [task] = [line for line in old if "ps:0" in line.plain]
        assert {span.style for span in task.spans} == {"dim"}

    in_view(scenario, watched)


def test_200_hosts_leave_most_of_the_terminal_to_the_log():
    watched = watched_run(FLEET)
    for number in range(200):
        use = sample(task_use(f"worker:{number}"), logs={f"worker:{number}": ["x"] * 30})
        watched.take(f"w{number + 1:03}", use, 99.0)

    async def scenario(app, pilot):
        assert "200 tasks on 200 hosts: 200 READY" in screen(app)[0]
        assert "w[001-200]" in screen(app)[3]
        assert screen(app).count("x") > 15
        for key, task in (("right", 1), ("right", 2), ("left", 1), ("left", 0)):
            await pilot.press(key)
            await settle(pilot)
            assert f"── worker:{task} on w" in text_of(app)

    in_view(scenario, watched)


def test_the_view_of_an_ended_run_stays_and_says_what_to_type():
    watched = two_hosts()
    tasks = [task_use("worker:0", state="SUCCEEDED"), task_use("worker:1", state="STOPPED")]
    watched.take("w", sample(*tasks), 100.0)
    watched.take("p", sample(task_use("ps:0", state="STOPPED")), 100.0)

    async def scenario(app, pilot):
        assert "succeeded. Next: tfdeploy collect" in text_of(app)
        assert "the run continues" not in text_of(app)
        assert app.is_running

    in_view(scenario, watched, size=(120, 24))
