"""The suites: each module has run(measurement, only), which returns rows."""
