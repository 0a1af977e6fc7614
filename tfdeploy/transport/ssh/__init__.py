"""Hosts reached by SSH: Fabric and Paramiko connect as OpenSSH's configuration says."""
