"""What runs on the hosts: standard library only, Python 3.8 and later, nothing else of tfdeploy."""
