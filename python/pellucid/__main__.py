"""The `pellucid` command: `python -m pellucid`, and the script `pellucid` that the package installs."""

import signal
import sys
from typing import NoReturn


def main() -> NoReturn:
    """Runs the command with the arguments of this process, and exits with its code."""
    # Until the command handles interrupts itself, they end the process without a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from pellucid import _native

    _native.main(sys.argv[1:], sys.executable, str(_native.__file__))


if __name__ == "__main__":
    main()
