"""A run as it is now: `watch` on a terminal and as JSON lines, and `metrics` for Prometheus."""


def documents() -> dict[str, type]:
    from tfdeploy.branches.live.document import WatchDocument

    return {"watch": WatchDocument}
