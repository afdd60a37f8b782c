rule failures:
    """Every failed episode of the taken-apart runs under exactly one kind."""
    input:
        config="<config>/failures.json",
        policies=expand(
            "<results>/evaluate/{policy}/manifest.json",
            policy=WORKFLOW.taken_apart,
        ),
        episodes=ancient(
            expand(
                "<results>/evaluate/{policy}/episodes.parquet",
                policy=WORKFLOW.taken_apart,
            )
        ),
        sources=closure.sources("measure.failures"),
        environment="envs/analysis.yaml",
    output:
        failures="<results>/failures/failures.csv",
        classified="<results>/failures/classified.parquet",
        manifest="<results>/failures/manifest.json",
        record="<results>/failures/run.json",
    log:
        "<logs>/failures.log",
    conda:
        "../../envs/analysis.yaml"
    threads: WORKFLOW.resources("failures").threads
    resources:
        mem_mb=WORKFLOW.resources("failures").mem_mb,
        runtime=WORKFLOW.resources("failures").runtime,
        disk_mb=WORKFLOW.resources("failures").disk_mb,
        gpu=WORKFLOW.resources("failures").gpu,
    params:
        policies=lambda wildcards, input: [
            str(Path(manifest).parent) for manifest in input.policies
        ],
        folder=subpath(output.manifest, parent=True),
    shell:
        "HEADROOM_ASKED=failures:gpu={resources.gpu},disk_mb={resources.disk_mb}"
        " python -m headroom.measure.failures"
        " --config {input.config} --output {params.folder} -- {params.policies} 2>&1 | tee {log}"


rule mechanism:
    """Rank, drift, agreement and grafts of all policies together, and what of them goes with success."""
    input:
        config="<config>/mechanism.json",
        rank=expand(
            "<results>/rank/{policy}/manifest.json",
            policy=WORKFLOW.resolved.mechanism.ranked,
        ),
        graft=expand(
            "<results>/graft/{run}/manifest.json",
            run=WORKFLOW.resolved.mechanism.grafted,
        ),
        evaluation=expand(
            "<results>/evaluate/{policy}/manifest.json",
            policy=WORKFLOW.resolved.mechanism.ranked,
        ),
        tables=ancient(
            expand(
                "<results>/rank/{policy}/{table}.csv",
                policy=WORKFLOW.resolved.mechanism.ranked,
                table=["rank", "agreement", "drift"],
            )
            + expand(
                "<results>/graft/{run}/{table}.csv",
                run=WORKFLOW.resolved.mechanism.grafted,
                table=["grafts", "interactions"],
            )
            + expand(
                "<results>/evaluate/{policy}/episodes.parquet",
                policy=WORKFLOW.resolved.mechanism.ranked,
            )
        ),
        sources=closure.sources("measure.mechanism"),
        environment="envs/analysis.yaml",
    output:
        rank="<results>/mechanism/rank.csv",
        agreement="<results>/mechanism/agreement.csv",
        drift="<results>/mechanism/drift.csv",
        success="<results>/mechanism/success.csv",
        correlations="<results>/mechanism/correlations.csv",
        grafts="<results>/mechanism/grafts.csv",
        interactions="<results>/mechanism/interactions.csv",
        manifest="<results>/mechanism/manifest.json",
        record="<results>/mechanism/run.json",
    log:
        "<logs>/mechanism.log",
    conda:
        "../../envs/analysis.yaml"
    threads: WORKFLOW.resources("mechanism").threads
    resources:
        mem_mb=WORKFLOW.resources("mechanism").mem_mb,
        runtime=WORKFLOW.resources("mechanism").runtime,
        disk_mb=WORKFLOW.resources("mechanism").disk_mb,
        gpu=WORKFLOW.resources("mechanism").gpu,
    params:
        folders=lambda wildcards, input: options(
            {
                name: [str(Path(manifest).parent) for manifest in input[name]]
                for name in ("rank", "graft", "evaluation")
            }
        ),
        folder=subpath(output.manifest, parent=True),
    shell:
        "HEADROOM_ASKED=mechanism:gpu={resources.gpu},disk_mb={resources.disk_mb}"
        " python -m headroom.measure.mechanism"
        " --config {input.config} {params.folders} --output {params.folder} 2>&1 | tee {log}"
