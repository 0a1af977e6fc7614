"""The parts of tfdeploy one by one: no host, no SSH, no network but loopback."""
