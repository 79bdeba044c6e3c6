"""All tests may ask for engines, write where it takes no time, and fork processes that are ready at once."""

pytest_plugins = ["tests.scratch", "tests.engines", "tests.forks"]
