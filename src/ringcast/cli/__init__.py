"""The command line: ``app`` wires the commands together, one file per command."""
