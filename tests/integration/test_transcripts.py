"""Whole console sessions: the commands of tests/transcripts/*.console print what is stored there.

`make transcripts` stores what they print now, where that differs.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from support import namespaces, transcript
from support.session import Session

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not namespaces.is_possible(), reason="needs root, iproute2 and sshd"),
]

FILES = sorted((Path(__file__).parents[1] / "transcripts").glob("*.console"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_session_prints_what_is_stored(file, tmp_path, pytestconfig):
    stored = transcript.read(file)
    session = Session(tmp_path, stored.settings)
    try:
        recorded = session.replay(stored)
    finally:
        session.close()
    now, before = transcript.normal(recorded), transcript.normal(stored)
    if now != before and pytestconfig.getoption("record"):
        file.write_text(recorded.text())
    elif now != before:
        pytest.fail(transcript.difference(before, now), pytrace=False)
