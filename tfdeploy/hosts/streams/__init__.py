"""What hosts report as it happens: streams of answers, followed and checked."""
