"""The messages between controller and agent: each request, and the record that answers it."""
