"""The folders on the controller: of runs, and of the user."""
