"""Where a run computes: hardware, Ray, limits of a machine; jobs of Ray, Slurm and KubeRay."""
