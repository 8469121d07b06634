"""For all checks: signals reach what they start."""

import signal

# A shell that starts something in the background has it ignore Ctrl-C, and so would everything below.
signal.signal(signal.SIGINT, signal.default_int_handler)
