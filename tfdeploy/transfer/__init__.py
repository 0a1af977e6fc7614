"""Send releases to the hosts; fetch checkpoints, outputs, events and logs to the controller."""
