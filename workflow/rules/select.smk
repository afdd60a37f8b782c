rule select:
    """The supervised policy plays the selection pages; its success decides which tasks are mastered, which leave headroom."""
    input:
        config="<config>/select.json",
        supervised="<results>/sft/sft/manifest.json",
        checkpoint=ancient("<results>/sft/sft/checkpoint"),
        sources=closure.sources("measure.select"),
        games=WORKFLOW.games,
        environment=WORKFLOW.environment("train"),
    output:
        task_sets="<results>/select/task_sets.json",
        tasks="<results>/select/tasks.csv",
        episodes="<results>/select/episodes.parquet",
        manifest="<results>/select/manifest.json",
        record="<results>/select/run.json",
    log:
        "<logs>/select.log",
    conda:
        WORKFLOW.conda("train")
    threads: WORKFLOW.resources("select").threads
    resources:
        mem_mb=WORKFLOW.resources("select").mem_mb,
        runtime=WORKFLOW.resources("select").runtime,
        disk_mb=WORKFLOW.resources("select").disk_mb,
        gpu=WORKFLOW.resources("select").gpu,
        gpu_mem_mb=WORKFLOW.resources("select").gpu_mem_mb,
    params:
        folder=subpath(output.manifest, parent=True),
    shell:
        "HEADROOM_ASKED=select:gpu={resources.gpu},gpu_mem_mb={resources.gpu_mem_mb},disk_mb={resources.disk_mb}"
        " python -m headroom.measure.select"
        " --config {input.config} --checkpoint {input.checkpoint} --output {params.folder} 2>&1 | tee {log}"
