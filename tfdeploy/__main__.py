"""`python -m tfdeploy` is `tfdeploy`."""

from tfdeploy.cli import main

main()
