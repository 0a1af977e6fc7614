"""For all tests: their order, the evidence of failed tests, and an isolated environment."""

from __future__ import annotations

import gc
import os
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from support import affected, evidence, order, starter
from support.releases import write_manifest
from support.ssh_masters import close_masters

from tfdeploy.transport.daemon import locate

if TYPE_CHECKING:
    from collections.abc import Iterator

gc.set_threshold(50_000)  # default: 700. Most objects of a session of tests live until its end

# Hypothesis draws the same examples in every run except a soak.
settings.register_profile("unit", deadline=None, max_examples=60, derandomize=True, database=None)
settings.load_profile("unit")
if "TFDEPLOY_FUZZ" in os.environ:
    max_examples = int(os.environ["TFDEPLOY_FUZZ"])
    settings.register_profile("soak", deadline=None, max_examples=max_examples, database=None)
    settings.load_profile("soak")

HASHES = pytest.StashKey[dict[str, str]]()
pytest_plugins = ["support.imports", "support.timeouts"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record", action="store_true", help="store what transcripts print now")
    parser.addoption("--write-costs", action="store_true", help="store the duration of each test")
    parser.addoption(
        "--affected", action="store_true", help="leave out slow tests whose subject is unchanged"
    )
    parser.addoption(
        "--prove", action="store_true", help="if all tests pass, store that for --affected"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Hash what is tested before the first test: an edit during the tests is not proved by them."""
    if config.getvalue("affected") or config.getvalue("prove"):
        config.stash[HASHES] = affected.hashes()


def pytest_report_header(config: pytest.Config) -> list[str]:
    return affected.report(_left_out(config))


def _left_out(config: pytest.Config) -> list[str]:
    return affected.proved(config.stash[HASHES]) if config.getvalue("affected") else []


def pytest_sessionstart(session: pytest.Session) -> None:
    if hasattr(session.config, "workerinput") or session.config.getvalue("dist") == "no":
        starter.forget()  # this process runs tests


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if left_out := affected.leave_out(_left_out(config), items):
        config.hook.pytest_deselected(items=left_out)
    if config.getvalue("dist") == "loadgroup" or hasattr(config, "workerinput"):
        order.arrange(items)


def pytest_make_parametrize_id(val: object) -> str | None:
    """Shorten long values: a test's name is in its environment, whose size is limited."""
    if isinstance(val, str | bytes) and len(val) > 200:
        return f"{len(val)} {type(val).__name__}"
    return None


def pytest_runtest_setup() -> None:
    evidence.reset()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    report = yield
    if report.skipped and "CI" in os.environ:
        report.outcome, report.longrepr = "failed", f"skipped, which CI forbids: {report.longrepr}"
    if report.failed and call.when != "teardown":
        report.sections.append(("evidence", evidence.write(item.nodeid)))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    config, stats = terminalreporter.config, terminalreporter.stats
    reports = [report for key in ("", "passed", "failed") for report in stats.get(key, ())]
    if config.getvalue("write_costs"):
        order.write(reports)
    elif config.getvalue("markexpr") == "slow" and (hint := order.hint(reports, order.read())):
        terminalreporter.write_line(hint)
    for line in affected.report(_left_out(config)):
        terminalreporter.write_line(line)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    config = session.config
    all_ran = config.args == ["tests"] and config.getvalue("markexpr") == "slow"
    is_part = config.getvalue("keyword") or hasattr(config, "workerinput")
    if config.getvalue("prove") and all_ran and not is_part and exitstatus == 0:
        affected.store(config.stash[HASHES])


@pytest.fixture(scope="session", autouse=True)
def own_connection_daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Isolate the tests from the connections, caches and settings of the developer's commands."""
    docker = os.environ.get("DOCKER_CONFIG") or os.path.expanduser("~/.docker")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_CONFIG", docker)
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        patch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("runtime")))
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield
        locate.stop_daemons()
        close_masters()


@pytest.fixture
def root(tmp_path, monkeypatch):
    """The agent's root on this host: the agent's own path decides where everything is stored."""
    folder = tmp_path / "root"
    (folder / "agent").mkdir(parents=True)
    monkeypatch.setattr(sys, "argv", [os.fspath(folder / "agent" / "abc.pyz")])
    return folder


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty home directory, for commands that use it."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", os.fspath(folder))
    return folder


@pytest.fixture
def release(root):
    """The release that launches name."""
    folder = root / "p" / "releases" / "f00d"
    folder.mkdir(parents=True)
    (folder / "run").write_text("#!/bin/sh\n")
    return write_manifest(folder)
