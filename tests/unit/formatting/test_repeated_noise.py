"""Noise that TensorFlow repeats is one line with its count."""

from __future__ import annotations

from tfdeploy.formatting.repeated_noise import COUNT_S, NoiseFolder

NOISE = "Ignoring error status when releasing multi-device function"
LINE = f"W0000 00:00:1 2 process_function_library_runtime.cc:1] {NOISE} handle INVALID"
COUNT = f"{NOISE} … ({{}} like this)"


def test_the_first_line_of_each_task_is_shown_and_the_others_are_counted():
    folder = NoiseFolder(lambda: 0.0)
    lines = [LINE, "step 1", LINE, "step 2", LINE]
    assert [folder.fold("a", line) for line in lines] == [LINE, "step 1", None, "step 2", None]
    assert folder.fold("b", LINE) == LINE
    assert list(folder.take_hidden()) == [("a", COUNT.format("2 more lines"))]
    assert list(folder.take_hidden()) == []


def test_a_log_that_is_followed_shows_the_count_from_time_to_time():
    seconds = iter([0.0, 1.0, COUNT_S + 1, COUNT_S + 2])
    folder = NoiseFolder(lambda: next(seconds))
    shown = [folder.fold("a", LINE) for _ in range(4)]
    assert shown == [LINE, None, COUNT.format("2 more lines"), None]
