"""Scenarios: the text language, its commands, and the log that expectations read."""
