"""Runs on this host: start and stop them, hand over their results, report and delete them."""
