"""Evaluation, paired contrasts, the headroom reading and the mechanism."""
