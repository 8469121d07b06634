"""The command line: messages, exit codes, output that is complete or missing, and credentials."""
