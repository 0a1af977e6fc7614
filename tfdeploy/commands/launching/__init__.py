"""Start the tasks of a run on its hosts, and wait until all are READY and reach each other."""
