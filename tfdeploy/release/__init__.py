"""Turn a source tree or a data set into an immutable Release, named by the hash of its content."""
