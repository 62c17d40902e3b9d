"""Where a run computes: hardware, Ray, limits of a machine; Slurm, Ray and KubeRay jobs.

Each launcher has `rendered`, which returns the job, script or manifest, and `submitted`, which
submits it. What runs there is a verb of factsweep with the same overrides.
"""
