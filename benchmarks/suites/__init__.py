"""The suites: each module has run(build, rounds, only), which returns rows."""
