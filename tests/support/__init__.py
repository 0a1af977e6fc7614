"""What tests share: hosts, projects, waits, ports, a warm TensorFlow, evidence of failures."""
