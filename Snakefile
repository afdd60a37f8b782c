"""headroom: will GRPO add skill to a supervised agent, or only reshape or break it?

    demonstrations -> sft -> select -> reading
                       |        |
                       +------> grpo -> evaluate -> contrast -----> figures
                                 |          +----> failures, filmstrip -+
                                 +--> rank, graft ---> mechanism -------+
                                 +--> dark_room (of that study) --------+

The numbers of a scale are in workflow/scales/, the runs in workflow/data/{runs,dark_room}.tsv: the two studies are the
same rules on other settings. One rule a stage; every rule lists the sources that can change its result (headroom.provenance.closure), so an edit reruns what it must.
"""

from snakemake.utils import min_version

min_version("9.20")


configfile: "config.yaml"


report: "workflow/report/workflow.rst"


include: "workflow/rules/common.smk"


if WORKFLOW.makes("scratch"):

    include: "workflow/rules/demonstrations.smk"
    include: "workflow/rules/overlap.smk"
    include: "workflow/rules/sft.smk"
    include: "workflow/rules/grpo.smk"


if WORKFLOW.makes("checkpoints"):

    include: "workflow/rules/select.smk"
    include: "workflow/rules/reading.smk"
    include: "workflow/rules/evaluate.smk"
    include: "workflow/rules/inside.smk"


if WORKFLOW.makes("evals"):

    include: "workflow/rules/contrast.smk"
    include: "workflow/rules/mechanism.smk"


if WORKFLOW.makes("evals") and WORKFLOW.filmed:

    include: "workflow/rules/filmstrip.smk"


if WORKFLOW.makes("evals") and WORKFLOW.study == "dark room":

    include: "workflow/rules/dark_room.smk"


if WORKFLOW.released.archive:

    include: "workflow/rules/released.smk"


include: "workflow/rules/figures.smk"


if WORKFLOW.judges:

    include: "workflow/rules/claims.smk"


rule all:
    """Everything that a reader opens, and every run: one that is lost is made again."""
    default_target: True
    input:
        branch(
            WORKFLOW.makes("scratch"),
            then=expand("<results>/grpo/{run}/manifest.json", run=WORKFLOW.init_of),
        ),
        branch(
            WORKFLOW.makes("checkpoints"),
            then=expand(
                "<results>/evaluate/{policy}/manifest.json",
                policy=WORKFLOW.resolved.policies,
            ),
        ),
        branch(WORKFLOW.makes("scratch"), then=["<results>/overlap/manifest.json"]),
        branch(
            WORKFLOW.makes("evals"),
            then=[
                "<results>/contrast/manifest.json",
                "<results>/reading/manifest.json",
                "<results>/mechanism/manifest.json",
                "<results>/failures/manifest.json",
            ],
        ),
        branch(
            WORKFLOW.makes("evals") and WORKFLOW.filmed,
            then="<results>/filmstrip/manifest.json",
        ),
        branch(
            WORKFLOW.makes("evals") and WORKFLOW.study == "dark room",
            then="<results>/dark_room/manifest.json",
        ),
        branch(WORKFLOW.judges, then="<figures>/claims.html"),
        expand("<figures>/{figure}.pdf", figure=WORKFLOW.figures),
