"""All tests may ask for engines, write where it takes no time, fork processes that are ready at once, and press Ctrl-C."""

pytest_plugins = ["tests.scratch", "tests.engines", "tests.forks", "tests.interrupts"]
