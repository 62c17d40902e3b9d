"""factsweep with leases that run out in seconds, and with a clock that is off.

$FACTSWEEP_TEST_CLOCK is by how many seconds this process believes it to be later. Its steps are Ray
tasks, as in large runs, unless $FACTSWEEP_TEST_SMALL is set.
"""

import os
import time

from factsweep.pipeline.cli import command
from factsweep.pipeline.runs import small_steps
from factsweep.pipeline.storage import lease

if __name__ == "__main__":
    true_time, off_s = time.time, float(os.environ["FACTSWEEP_TEST_CLOCK"])
    time.time = lambda: true_time() + off_s
    if "FACTSWEEP_TEST_SMALL" not in os.environ:
        small_steps.MOST = 0
    lease.EXPIRES_S, lease.RENEW_S = 4.0, 0.5
    command()
