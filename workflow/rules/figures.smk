# What a figure may read: the name in workflow/data/figures.tsv, column tables -> the files.
TABLES = {
    "contrasts": "<results>/contrast/contrasts.csv",
    "init_contrasts": "<results>/contrast/init_contrasts.csv",
    "replication": "<results>/contrast/replication.csv",
    "statistics": "<config>/contrast.json",
    "demonstrations": "<config>/demonstrations.json",
    "task_contrasts": "<results>/contrast/task_contrasts.csv",
    "tasks": "<results>/select/tasks.csv",
    "overlap": "<results>/overlap/overlap.csv",
    "reading": "<results>/reading/reading.csv",
    "runs": WORKFLOW.resolved.study.runs_table,
    "rank": "<results>/mechanism/rank.csv",
    "agreement": "<results>/mechanism/agreement.csv",
    "drift": "<results>/mechanism/drift.csv",
    "policy_success": "<results>/mechanism/success.csv",
    "correlations": "<results>/mechanism/correlations.csv",
    "grafts": "<results>/mechanism/grafts.csv",
    "interactions": "<results>/mechanism/interactions.csv",
    "failures": "<results>/failures/failures.csv",
    "filmstrip": "<results>/filmstrip/filmstrip.json",
    "arms": "<results>/dark_room/dark_room.csv",
    "validation": "<results>/dark_room/validation.csv",
    "signs": "<results>/dark_room/signs.csv",
    "failing_groups": "<results>/dark_room/failing_groups.csv",
    "steps": expand("<results>/grpo/{run}/steps.parquet", run=WORKFLOW.init_of),
}


if WORKFLOW.makes("evals"):

    rule figure_data:
        """The numbers of a figure, before any picture."""
        input:
            unpack(
                lambda wildcards: {
                    name: TABLES[name]
                    for name in WORKFLOW.figures[wildcards.figure].tables
                }
            ),
            frames=lambda wildcards: (
                "<results>/filmstrip/manifest.json"
                if "filmstrip" in WORKFLOW.figures[wildcards.figure].tables
                else []
            ),
            sources=lambda wildcards: closure.sources(
                f"present.{WORKFLOW.figures[wildcards.figure].module}"
            ),
            environment="envs/figures.yaml",
        output:
            table=report(
                "<figures>/data/{figure}.csv",
                caption="../report/numbers.rst",
                category="Numbers",
                labels=lambda wildcards: {
                    "table": WORKFLOW.figures[wildcards.figure].title
                },
            ),
            record="<figures>/records/{figure}.data.run.json",
        log:
            "<logs>/figures/{figure}.data.log",
        conda:
            "../../envs/figures.yaml"
        threads: WORKFLOW.resources("figure").threads
        resources:
            mem_mb=WORKFLOW.resources("figure").mem_mb,
            runtime=WORKFLOW.resources("figure").runtime,
            disk_mb=WORKFLOW.resources("figure").disk_mb,
            gpu=0,
        params:
            module=lambda wildcards: WORKFLOW.figures[wildcards.figure].module,
            tables=lambda wildcards, input: options(
                {
                    name: input[name]
                    for name in WORKFLOW.figures[wildcards.figure].tables
                }
            ),
        shell:
            "HEADROOM_ASKED=figure_data:gpu={resources.gpu},disk_mb={resources.disk_mb}"
            " python -m headroom.present.{params.module} data {params.tables}"
            " --output {output.table} 2>&1 | tee {log}"


rule figure:
    """A drawing, from its numbers alone."""
    input:
        table="<figures>/data/{figure}.csv",
        sources=lambda wildcards: closure.sources(
            f"present.{WORKFLOW.figures[wildcards.figure].module}"
        ),
        environment="envs/figures.yaml",
    output:
        pdf="<figures>/{figure}.pdf",
        png=report(
            "<figures>/{figure}.png",
            caption="../report/figure.rst",
            category="Figures",
            labels=lambda wildcards: {
                "figure": WORKFLOW.figures[wildcards.figure].title
            },
        ),
        caption="<figures>/captions/{figure}.txt",
        record="<figures>/records/{figure}.draw.run.json",
    log:
        "<logs>/figures/{figure}.draw.log",
    conda:
        "../../envs/figures.yaml"
    threads: WORKFLOW.resources("figure").threads
    resources:
        mem_mb=WORKFLOW.resources("figure").mem_mb,
        runtime=WORKFLOW.resources("figure").runtime,
        disk_mb=WORKFLOW.resources("figure").disk_mb,
        gpu=0,
    params:
        module=lambda wildcards: WORKFLOW.figures[wildcards.figure].module,
    shell:
        "HEADROOM_ASKED=figure:gpu={resources.gpu},disk_mb={resources.disk_mb}"
        " python -m headroom.present.{params.module} draw --data {input.table} --output {output.pdf} 2>&1 | tee {log}"
