"""What a study would cost, before any of it runs: memory, time, disk, and whether it fits."""
