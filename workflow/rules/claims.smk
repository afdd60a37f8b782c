rule claims:
    """The verdict on every claim of the papers by the rule that was fixed beforehand, and what was ours to choose."""
    input:
        unpack(lambda wildcards: {name: TABLES[name] for name in WORKFLOW.judged_by}),
        claims="workflow/data/claims.yaml",
        deviations="workflow/data/deviations.yaml",
        statistics=TABLES["statistics"],
        settings=list(WORKFLOW.resolved.files),
        sources=closure.sources("present.claims"),
        environment="envs/figures.yaml",
    output:
        table="<figures>/data/claims.csv",
        deviations="<figures>/data/deviations.csv",
        page=report(
            "<figures>/claims.html",
            caption="../report/claims.rst",
            category="Claims",
            labels={"page": "Claims, verdicts and settings that were ours"},
        ),
        summary="<figures>/captions/claims.rst",
        record="<figures>/records/claims.data.run.json",
    log:
        "<logs>/claims.log",
    conda:
        "../../envs/figures.yaml"
    threads: WORKFLOW.resources("claims").threads
    resources:
        mem_mb=WORKFLOW.resources("claims").mem_mb,
        runtime=WORKFLOW.resources("claims").runtime,
        disk_mb=WORKFLOW.resources("claims").disk_mb,
        gpu=0,
    params:
        settings=subpath(input.statistics, parent=True),
        tables=lambda wildcards, input: options(
            {name: input[name] for name in WORKFLOW.judged_by}
        ),
    shell:
        "HEADROOM_ASKED=claims:gpu={resources.gpu},disk_mb={resources.disk_mb}"
        " python -m headroom.present.claims"
        " --claims {input.claims} --deviations {input.deviations} --settings {params.settings} {params.tables}"
        " --output {output.table} 2>&1 | tee {log}"
