"""Real sshd, rsync, agent and command line on loopback; only the training is a stub."""
