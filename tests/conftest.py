"""Property tests say the same thing on every machine: no time limit an example, and the same examples each run."""

import os

from hypothesis import settings

# Small models: one thread is faster than several, and far faster on a busy machine. Before torch is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

settings.register_profile("reproducible", deadline=None, derandomize=True)
settings.load_profile("reproducible")
