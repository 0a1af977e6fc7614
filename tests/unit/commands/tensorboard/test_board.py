"""The runs in TensorBoard have names, and their fetchers end together."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import pytest
from support.builders import make_run

from tfdeploy.commands.tensorboard import board as module
from tfdeploy.commands.tensorboard.board import EventBoard, prepare_events
from tfdeploy.run import labels as run_labels

ONE, TWO = "20260101-000000-aaaa", "20260102-000000-bbbb"


@pytest.mark.parametrize(
    ("names", "labels"),
    [(("", ""), [ONE, TWO]), (("base", "wide"), ["base", "wide"]), (("base", ""), ["base", TWO]),
     (("base", "base"), [ONE, TWO])],
)  # fmt: skip
def test_a_run_is_called_by_its_name_if_no_other_has_it(tmp_path, names, labels):
    runs = [
        replace(make_run(tmp_path, run_id=run_id), name=name)
        for run_id, name in zip((ONE, TWO), names, strict=True)
    ]
    assert run_labels(runs) == labels


def test_every_fetcher_is_asked_to_end_before_one_is_waited_for(tmp_path, monkeypatch):
    done = []

    class Fetcher:
        def __init__(self, run, on_away, on_back, reload):
            self.run = run

        def __enter__(self):
            return self

        def __exit__(self, *_):
            done.append("waited")

        def end(self):
            done.append("ended")

    monkeypatch.setattr(module, "EventFetcher", Fetcher)
    monkeypatch.setattr(module, "TensorBoard", lambda folders, port: nullcontext())
    monkeypatch.setattr(module, "delay_signals", nullcontext)
    runs = [make_run(tmp_path, run_id=run_id) for run_id in (ONE, TWO)]
    for run in runs:
        run.folder.mkdir(parents=True)
    with EventBoard(runs, *[None] * 3, offline=False):
        assert not done
    assert done == ["ended", "ended", "waited", "waited"]


def test_tensorboard_follows_no_link_in_the_folder_of_the_events(tmp_path):
    run = make_run(tmp_path)
    folder = run.folder / "events"
    folder.mkdir(parents=True)
    (tmp_path / "secret").write_text("secret")
    (folder / "events.out.tfevents.1.a").symlink_to(tmp_path / "secret")
    (folder / "events.out.tfevents.2.a").write_text("own")
    assert [file.name for file in prepare_events(run).iterdir()] == ["events.out.tfevents.2.a"]
