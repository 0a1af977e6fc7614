"""The page of `tfdeploy runs --html` in a browser."""

from __future__ import annotations

import pytest
from support.browser import Chromium
from support.finished import ONE, TWO, finished_run

from tfdeploy.experiments.run_report import all_runs
from tfdeploy.experiments.run_report.page import write

HOSTS = "[hosts.a-host-with-a-rather-long-name]\nps = 1\n[hosts.b]\nworkers = 2"
NAMES = "[...document.querySelectorAll('tbody th a')].map(each => each.textContent)"


@pytest.fixture
def file(tmp_path):
    """Write the page of two runs; the words of one try to be markup."""
    evil = "<script>alert(1)</script><img src=http://127.0.0.1:9/x>" + "long" * 100
    finished_run(tmp_path, ONE, hosts=HOSTS, name="base", losses=(3.0, 2.0, 1.0))
    finished_run(tmp_path, TWO, hosts=HOSTS, name="wide", words=("--x", evil))
    written = tmp_path / "runs" / "index.html"
    write(
        written, all_runs.render_index(all_runs.gather_index(tmp_path / "hosts.toml", written, str))
    )
    return written


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1400])
def test_a_browser_shows_all_runs_and_asks_for_nothing_else(file, tmp_path, width, scheme) -> None:
    with Chromium(tmp_path / "profile") as browser:
        browser.open(file.as_uri(), width=width, scheme=scheme)
        assert browser.evaluate(NAMES) == ["wide", "base"]
        assert browser.requests == [file.as_uri()]
        assert browser.problems == []
        table = "(({scrollWidth, clientWidth}) => [scrollWidth, clientWidth])"
        whole, shown = browser.evaluate(f"{table}(document.querySelector('.scroll'))")
        assert whole <= shown  # nothing is cut
        content, window = browser.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert content <= window == width
        dark = browser.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (dark == "rgb(15, 20, 26)") == (scheme == "dark")
        outside = """[...document.querySelectorAll('body *')].filter(each =>
            !each.closest('.scroll, .skip, svg') &&
            each.getBoundingClientRect().right > innerWidth + 1).map(each => each.outerHTML)"""
        assert browser.evaluate(outside) == []


@pytest.mark.slow
def test_a_heading_sorts_the_table_with_mouse_and_keyboard(file, tmp_path) -> None:
    heading = "document.querySelectorAll('th button')"
    with Chromium(tmp_path / "profile") as browser:
        browser.open(file.as_uri(), width=1400, scheme="light")
        assert browser.evaluate("document.querySelector('[aria-sort]').textContent") == "Started"
        browser.evaluate(f"{heading}[0].click()")
        assert browser.evaluate(NAMES) == ["base", "wide"]
        browser.evaluate(f"{heading}[3].focus()")  # the last loss: 1 and 0.5
        for expected, direction in (
            (["wide", "base"], "ascending"),
            (["base", "wide"], "descending"),
        ):
            for kind in ("keyDown", "keyUp"):
                key = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"}
                browser.ask("Input.dispatchKeyEvent", type=kind, **key)
            assert browser.evaluate(NAMES) == expected
            sorted_by = "document.querySelector('[aria-sort]')"
            assert browser.evaluate(f"{sorted_by}.ariaSort") == direction
            assert browser.evaluate(f"{sorted_by}.textContent") == "Last loss"


@pytest.mark.slow
def test_a_link_leads_to_the_report_of_the_run(file, tmp_path) -> None:
    with Chromium(tmp_path / "profile") as browser:
        browser.open(file.as_uri(), width=1400, scheme="light")
        target = browser.evaluate("document.querySelector('tbody th a').href")
        browser.open(target, width=1400, scheme="light")
        assert browser.evaluate("document.title") == "p: run wide"
        assert browser.problems == []


@pytest.mark.slow
def test_only_the_own_script_of_the_page_runs(file, tmp_path) -> None:
    """The policy holds even if a value were markup."""
    evil = "<img src='http://127.0.0.1:9/x'><script>document.title = 'evil'</script>"
    file.write_text(file.read_text().replace("</main>", f"{evil}</main>"))
    with Chromium(tmp_path / "profile") as browser:
        browser.open(file.as_uri(), width=1400, scheme="light")
        assert browser.problems
        assert browser.evaluate("document.title") != "evil"
        assert browser.evaluate("document.querySelectorAll('th button').length") == 10
