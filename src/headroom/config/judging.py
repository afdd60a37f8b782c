"""What the claims of each study are judged by: read by the rules and by the stage alike."""

from __future__ import annotations

JUDGED_BY = {
    "gate": (
        *("contrasts", "init_contrasts", "task_contrasts", "replication", "reading", "rank", "agreement", "drift"),
        *("correlations", "grafts", "failures", "runs"),
    ),
    "dark room": ("arms", "validation", "signs", "failing_groups", "runs"),
}
"""Study -> the names of its tables, as ``workflow/rules/figures.smk`` and the options of ``present.claims`` are."""
