"""The page of all runs: `tfdeploy runs --html`."""
