# SPDX-License-Identifier: BSD-3-Clause
"""How long is waited for others."""

import os


def slow(seconds):
    """How many seconds are to be waited where all takes ANGARA_TEST_SLOW times as long."""
    return seconds * int(os.environ.get("ANGARA_TEST_SLOW") or 1)
