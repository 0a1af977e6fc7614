"""What hosts have of a run: held there, fetched, verified and installed in runs/<run>/."""
