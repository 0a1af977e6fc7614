"""What a hosts.toml may use without a question, and what its user has to trust first.

A hosts.toml can come with somebody else's repository, and people look before they run: `plan`,
`check` and `status` must not run or read what such a file names outside of its own repository.
Those values are used only after the user has trusted them once, as direnv does it.
"""
