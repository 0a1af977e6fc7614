"""`tfdeploy tensorboard`: fetch the events of runs as tasks write them, and show them."""
