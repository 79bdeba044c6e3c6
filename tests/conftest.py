"""All tests may ask for engines."""

pytest_plugins = ["tests.engines"]
