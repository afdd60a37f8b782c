rule contrast:
    """Paired contrasts of every policy with the supervised one: McNemar, clustered bootstrap, equivalence, Holm."""
    input:
        config="<config>/contrast.json",
        runs=WORKFLOW.resolved.study.runs_table,
        reference="<results>/evaluate/sft/manifest.json",
        policies=expand(
            "<results>/evaluate/{policy}/manifest.json",
            policy=WORKFLOW.resolved.policies,
        ),
        episodes=ancient(
            expand(
                "<results>/evaluate/{policy}/episodes.parquet",
                policy=WORKFLOW.resolved.policies,
            )
        ),
        task_sets="<results>/select/task_sets.json",
        sources=closure.sources("measure.contrast"),
        environment="envs/analysis.yaml",
    output:
        contrasts="<results>/contrast/contrasts.csv",
        init_contrasts="<results>/contrast/init_contrasts.csv",
        replication="<results>/contrast/replication.csv",
        task_contrasts="<results>/contrast/task_contrasts.csv",
        manifest="<results>/contrast/manifest.json",
        record="<results>/contrast/run.json",
    log:
        "<logs>/contrast.log",
    conda:
        "../../envs/analysis.yaml"
    threads: WORKFLOW.resources("contrast").threads
    resources:
        mem_mb=WORKFLOW.resources("contrast").mem_mb,
        runtime=WORKFLOW.resources("contrast").runtime,
        disk_mb=WORKFLOW.resources("contrast").disk_mb,
        gpu=WORKFLOW.resources("contrast").gpu,
    params:
        reference=subpath(input.reference, parent=True),
        policies=lambda wildcards, input: [
            str(Path(manifest).parent) for manifest in input.policies
        ],
        folder=subpath(output.manifest, parent=True),
    shell:
        "HEADROOM_ASKED=contrast:gpu={resources.gpu},disk_mb={resources.disk_mb}"
        " python -m headroom.measure.contrast"
        " --config {input.config} --runs {input.runs} --reference {params.reference} --task-sets {input.task_sets}"
        " --output {params.folder} -- {params.policies} 2>&1 | tee {log}"
