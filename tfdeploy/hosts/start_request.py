"""The start requests of one run: what is the same for all hosts is encoded and compressed once."""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING

from tfdeploy.hosts.agent_session import Query
from tfdeploy.shared.protocol.record import to_json
from tfdeploy.shared.protocol.runs import Start
from tfdeploy.shared.protocol.shared_parts import SharedParts, leave_out

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdeploy.shared.protocol.reports import RunEvent
    from tfdeploy.shared.protocol.runs import RunRecord
    from tfdeploy.shared.records import Launch

LEVEL = 9  # once for all hosts


class StartRequests:
    """`texts` are those that launches may have in common; `first` is any launch of the run."""

    def __init__(self, record: RunRecord, texts: Sequence[str], first: Launch) -> None:
        heartbeat = first.heartbeat
        lists = (first.no_proxy, heartbeat.tasks, heartbeat.needed, heartbeat.replicas)
        # The longest first: a shorter one may be a part of it.
        self._shared = SharedParts(sorted(texts, key=len, reverse=True), *lists)
        self._record = record
        common = {"record": to_json(record), "shared": to_json(self._shared)}
        self._begin = json.dumps([Start.VERB, common]).removesuffix("}]").encode()
        self._packer = zlib.compressobj(LEVEL)
        self._packed = self._packer.compress(self._begin) + self._packer.flush(zlib.Z_SYNC_FLUSH)

    def query(self, launches: Sequence[Launch]) -> Query[RunEvent]:
        """Return the request that starts these tasks, encoded."""
        request = Start(
            [leave_out(launch, self._shared) for launch in launches], self._record, self._shared
        )
        own = json.dumps({"launches": to_json(request.launches)}).removeprefix("{")
        end = f", {own}]\n".encode()
        packer = self._packer.copy()
        packed = self._packed + packer.compress(end) + packer.flush()
        return Query(request, end, packed, self._begin)
