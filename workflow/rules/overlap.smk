rule overlap:
    """How many pages of the held-out pools also occur in training, in demonstrations or in any run, task by task."""
    input:
        config="<config>/overlap.json",
        task_sets="<results>/select/task_sets.json",
        sources=closure.sources("measure.overlap"),
        games=WORKFLOW.games,
        environment=WORKFLOW.environment("worlds"),
    output:
        table="<results>/overlap/overlap.csv",
        manifest="<results>/overlap/manifest.json",
        record="<results>/overlap/run.json",
    log:
        "<logs>/overlap.log",
    conda:
        WORKFLOW.conda("worlds")
    threads: WORKFLOW.resources("demonstrations").threads
    resources:
        mem_mb=WORKFLOW.resources("demonstrations").mem_mb,
        runtime=WORKFLOW.resources("demonstrations").runtime,
        disk_mb=WORKFLOW.resources("demonstrations").disk_mb,
        gpu=0,
    params:
        folder=subpath(output.manifest, parent=True),
    shell:
        "HEADROOM_ASKED=overlap:gpu={resources.gpu},disk_mb={resources.disk_mb}"
        " python -m headroom.measure.overlap --config {input.config} --task-sets {input.task_sets}"
        " --output {params.folder} 2>&1 | tee {log}"
