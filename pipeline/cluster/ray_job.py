"""A job for the job server of a running Ray cluster."""

import json
import os
from collections.abc import Sequence

from factsweep.operators.errors import InputError
from factsweep.pipeline.cluster import order
from factsweep.pipeline.config.cluster import RayJob
from factsweep.pipeline.config.run import Run


def rendered(run: Run, overrides: Sequence[str], verb: str = "run") -> str:
    """The job as the server is sent it, in JSON.

    Raises:
        InputError: the cluster could not see the artifacts, the results or the configuration.
    """
    order.check_no_own_folder()
    order.check_reachable(run, shared_folders=True)
    job = {"entrypoint": order.command(overrides, verb), "metadata": {"run": run.name}}
    return json.dumps(job, indent=1)


def submitted(launch: RayJob, text: str) -> str:
    """Submit the job; returns what the user can do next.

    Raises:
        InputError: no job server answers, or it refuses.
    """
    from ray.exceptions import AuthenticationError
    from ray.job_submission import JobSubmissionClient

    address = launch.job_server or os.environ.get("RAY_API_SERVER_ADDRESS")
    if address is None:
        raise InputError(
            "cluster.launch.job_server is null; give the address of the cluster's job server, such "
            "as http://head:8265."
        )
    try:
        name = JobSubmissionClient(address).submit_job(**json.loads(text))
    except (AuthenticationError, ConnectionError, RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise InputError(
            f"the job server at {address} did not take the job ({reason}); check "
            "cluster.launch.job_server."
        ) from error
    return f"submitted {name}; follow it with: ray job logs --follow --address {address} {name}"
