"""Which tasks hosts can't reach, and what the user can do."""

from __future__ import annotations

from support.builders import make_plan

from tfdeploy.commands.preflight.reachability import unreached_tasks
from tfdeploy.shared.protocol.preflight import REFUSED, PeerHealth, PeersAsked
from tfdeploy.shared.records import READY, UNREACHABLE

HOSTS = "[hosts.p]\nps = 1\n" + "".join(f"[hosts.{name}]\nworkers = 1\n" for name in "abc")


def test_hosts_that_the_guard_refuses_get_another_hint_than_those_behind_a_firewall():
    plan = make_plan(HOSTS)
    verdicts = {"a": READY, "b": REFUSED, "c": UNREACHABLE}
    answers = {
        host: PeersAsked([PeerHealth("ps:0", verdict, f"{verdict} here")], "")
        for host, verdict in verdicts.items()
    }
    behind, refused = map(str, unreached_tasks(plan, answers))
    where = f"it at {plan.placements[0].endpoint}"
    assert behind.startswith(f"ps:0 on p: c can't reach {where}: UNREACHABLE here\n")
    assert "firewall" in behind
    assert refused.startswith(f"ps:0 on p: b can't reach {where}: REFUSED here\n  set one user")
    assert "firewall" not in refused
