"""What a Slurm cluster must offer before the workflow is sent to it."""
