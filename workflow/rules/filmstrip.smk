rule filmstrip:
    """One page of each regime that a rule picks, replayed with the actions drawn on it."""
    input:
        config="<config>/filmstrip.json",
        reference="<results>/evaluate/sft/manifest.json",
        policies=expand(
            "<results>/evaluate/{policy}/manifest.json",
            policy=WORKFLOW.taken_apart[1:],
        ),
        episodes=ancient(
            expand(
                "<results>/evaluate/{policy}/episodes.parquet",
                policy=WORKFLOW.taken_apart,
            )
        ),
        sources=closure.sources("measure.filmstrip"),
        environment="envs/worlds.yaml",
    output:
        strips="<results>/filmstrip/filmstrip.json",
        manifest="<results>/filmstrip/manifest.json",
        record="<results>/filmstrip/run.json",
    log:
        "<logs>/filmstrip.log",
    conda:
        "../../envs/worlds.yaml"
    threads: WORKFLOW.resources("filmstrip").threads
    resources:
        mem_mb=WORKFLOW.resources("filmstrip").mem_mb,
        runtime=WORKFLOW.resources("filmstrip").runtime,
        disk_mb=WORKFLOW.resources("filmstrip").disk_mb,
        gpu=WORKFLOW.resources("filmstrip").gpu,
    params:
        reference=subpath(input.reference, parent=True),
        policies=lambda wildcards, input: [
            str(Path(manifest).parent) for manifest in input.policies
        ],
        folder=subpath(output.manifest, parent=True),
    shell:
        "HEADROOM_ASKED=filmstrip:gpu={resources.gpu},disk_mb={resources.disk_mb}"
        " python -m headroom.measure.filmstrip"
        " --config {input.config} --reference {params.reference} --output {params.folder} -- {params.policies}"
        " 2>&1 | tee {log}"
