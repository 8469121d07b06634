"""Rates and sizes in words, and the judgement of a calibration: the lab's pure part.

Nothing here touches a device, so all of it is tested in `lab/test_lab.py` without root.
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

# A calibration that is further off than this voids the run (facts: the kernel's
# throttle holds to 1 % over 2 s and more, so 5 % means that something else limits).
TOLERANCE = 0.05


def parse_bytes(text: str) -> int:
    """`64MiB` to bytes. Decimal (`MB`) and binary (`MiB`) units; none means bytes."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    if not match or match[2].upper() not in UNITS:
        raise ValueError(f"{text!r} is no size: write for example 64MiB or 2GB")
    return int(float(match[1]) * UNITS[match[2].upper()])


def parse_rate(text: str) -> int:
    """`50MB/s` to bytes per second; the `/s` may be left out."""
    try:
        rate = parse_bytes(re.sub(r"/s\s*$", "", text))
    except ValueError:
        raise ValueError(f"{text!r} is no rate: write for example 50MB/s") from None
    if rate == 0:
        raise ValueError(f"{text!r}: a rate is above zero")
    return rate


def show_rate(bytes_per_s: float) -> str:
    """Bytes per second as `50 MB/s`, with a decimal only where it says something."""
    mb = bytes_per_s / 1e6
    return f"{mb:.0f} MB/s" if abs(mb - round(mb)) < 0.05 else f"{mb:.1f} MB/s"


def throttle_line(device_number: str, bytes_per_s: int | None) -> str:
    """What cgroup v1's `blkio.throttle.*_bps_device` takes; no rate clears the limit."""
    return f"{device_number} {bytes_per_s or 0}"


def off_by(asked_bytes_per_s: float, measured_bytes_per_s: float) -> float:
    """How far a measured rate is from the one asked for, as a share of it."""
    return abs(measured_bytes_per_s - asked_bytes_per_s) / asked_bytes_per_s


def parse_block_stat(text: str) -> tuple[int, int]:
    """Bytes read and written since boot, from `/sys/block/NAME/stat`.

    Fields 3 and 7 count sectors of 512 bytes whatever the device's own sector is
    (Linux `Documentation/block/stat.rst`).
    """
    fields = text.split()
    return int(fields[2]) * 512, int(fields[6]) * 512
