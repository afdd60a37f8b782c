"""Property tests say the same thing on every machine: no time limit an example, and the same examples each run."""

from hypothesis import settings

settings.register_profile("reproducible", deadline=None, derandomize=True)
settings.load_profile("reproducible")
