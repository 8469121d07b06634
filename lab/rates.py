"""Parsing and printing of rates and sizes, and the tolerance of a calibration.

Nothing here touches a device, so `lab/test_lab.py` tests all of it without root.
"""

import re

UNITS = {
    "": 1,
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "KIB": 2**10,
    "MIB": 2**20,
    "GIB": 2**30,
}

# A calibration that is further off voids the run. The kernel's throttle holds to 1 % over 2 s
# and more, so 5 % means that something else limits.
TOLERANCE = 0.05


def parse_bytes(text: str) -> int:
    """Parses `64MiB` to bytes. Units are decimal (`MB`) or binary (`MiB`); no unit means bytes."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    if not match or match[2].upper() not in UNITS:
        raise ValueError(f"invalid size {text!r}: expected for example 64MiB or 2GB")
    return int(float(match[1]) * UNITS[match[2].upper()])


def parse_rate(text: str) -> int:
    """Parses `50MB/s` to bytes per second; the `/s` is optional."""
    try:
        rate = parse_bytes(re.sub(r"/s\s*$", "", text))
    except ValueError:
        raise ValueError(f"invalid rate {text!r}: expected for example 50MB/s") from None
    if rate == 0:
        raise ValueError(f"invalid rate {text!r}: it must be above zero")
    return rate


def show_rate(bytes_per_s: float) -> str:
    """Formats bytes per second as `50 MB/s`, with one decimal unless it is zero."""
    mb = bytes_per_s / 1e6
    return f"{mb:.0f} MB/s" if abs(mb - round(mb)) < 0.05 else f"{mb:.1f} MB/s"


def throttle_line(device_number: str, bytes_per_s: int | None) -> str:
    """Returns a line for cgroup v1's `blkio.throttle.*_bps_device`; None clears the limit."""
    return f"{device_number} {bytes_per_s or 0}"


def off_by(requested_bytes_per_s: float, measured_bytes_per_s: float) -> float:
    """Returns the deviation of a measured rate from the requested one, as a fraction of it."""
    return abs(measured_bytes_per_s - requested_bytes_per_s) / requested_bytes_per_s


def parse_block_stat(text: str) -> tuple[int, int]:
    """Parses `/sys/block/NAME/stat` to the bytes read and written since boot.

    Fields 3 and 7 count sectors of 512 bytes, regardless of the device's sector size
    (Linux `Documentation/block/stat.rst`).
    """
    fields = text.split()
    return int(fields[2]) * 512, int(fields[6]) * 512
