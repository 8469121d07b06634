"""For all tests: restores the default Ctrl-C handler, also in the processes that they start, and names a marker."""

import signal

# A process that a shell starts in the background ignores Ctrl-C, and its children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config):
    config.addinivalue_line("markers", "alone: beside no other test, because it measures the machine or looks at all of its devices")
