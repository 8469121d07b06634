"""Restores the default Ctrl-C handler for all tests and the processes that they start."""

import signal

# A process that a shell starts in the background ignores Ctrl-C, and its children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
