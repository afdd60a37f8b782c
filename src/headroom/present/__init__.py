"""Figures, tables and the verdicts on the claims."""
