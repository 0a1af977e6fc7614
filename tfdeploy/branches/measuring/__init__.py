"""What runs have reached, and how fast: `report`, `compare` and `sweep`."""


def documents() -> dict[str, type]:
    from tfdeploy.branches.measuring.compare import Comparison
    from tfdeploy.branches.measuring.speed.report import SweepDocument

    return {"compare": Comparison, "sweep": SweepDocument}
