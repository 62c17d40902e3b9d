"""factsweep with leases that run out in seconds, and with a clock that is off.

$FACTSWEEP_TEST_CLOCK is by how many seconds this process believes it to be later.
"""

import os
import time

from factsweep.pipeline.cli import command
from factsweep.pipeline.storage import lease

if __name__ == "__main__":
    true_time, off_s = time.time, float(os.environ["FACTSWEEP_TEST_CLOCK"])
    time.time = lambda: true_time() + off_s
    lease.EXPIRES_S, lease.RENEW_S = 4.0, 0.5
    command()
