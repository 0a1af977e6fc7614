"""Each test plays an attacker: a stranger on the network, or another user of a host."""
