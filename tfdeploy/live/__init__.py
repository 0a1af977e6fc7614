"""The live view of a run: what a terminal shows while the run trains, and lines without one."""
