rule demonstrations:
    """Scripted oracles play the train pages; their successful episodes are what the policy imitates."""
    input:
        config="<config>/demonstrations.json",
        sources=closure.sources("train.demonstrations"),
        games=WORKFLOW.games,
        environment=WORKFLOW.environment("worlds"),
    output:
        table="<results>/demonstrations/demonstrations.parquet",
        manifest="<results>/demonstrations/manifest.json",
        record="<results>/demonstrations/run.json",
    log:
        "<logs>/demonstrations.log",
    conda:
        WORKFLOW.conda("worlds")
    threads: WORKFLOW.resources("demonstrations").threads
    resources:
        mem_mb=WORKFLOW.resources("demonstrations").mem_mb,
        runtime=WORKFLOW.resources("demonstrations").runtime,
        disk_mb=WORKFLOW.resources("demonstrations").disk_mb,
        gpu=WORKFLOW.resources("demonstrations").gpu,
    params:
        folder=subpath(output.manifest, parent=True),
    shell:
        "HEADROOM_ASKED=demonstrations:gpu={resources.gpu},disk_mb={resources.disk_mb}"
        " python -m headroom.train.demonstrations"
        " --config {input.config} --output {params.folder} 2>&1 | tee {log}"
