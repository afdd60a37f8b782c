rule reading:
    """The headroom reading: sampled minus greedy success of the supervised policy, before any reinforcement learning."""
    input:
        config="<config>/reading.json",
        supervised="<results>/sft/sft/manifest.json",
        checkpoint=ancient("<results>/sft/sft/checkpoint"),
        task_sets="<results>/select/task_sets.json",
        sources=closure.sources("measure.reading"),
        games=WORKFLOW.games,
        environment=WORKFLOW.environment("train"),
    output:
        table="<results>/reading/reading.csv",
        text="<results>/reading/reading.txt",
        episodes="<results>/reading/episodes.parquet",
        manifest="<results>/reading/manifest.json",
        record="<results>/reading/run.json",
    log:
        "<logs>/reading.log",
    conda:
        WORKFLOW.conda("train")
    threads: WORKFLOW.resources("reading").threads
    resources:
        mem_mb=WORKFLOW.resources("reading").mem_mb,
        runtime=WORKFLOW.resources("reading").runtime,
        disk_mb=WORKFLOW.resources("reading").disk_mb,
        gpu=WORKFLOW.resources("reading").gpu,
        gpu_mem_mb=WORKFLOW.resources("reading").gpu_mem_mb,
    params:
        folder=subpath(output.manifest, parent=True),
    shell:
        "HEADROOM_ASKED=reading:gpu={resources.gpu},gpu_mem_mb={resources.gpu_mem_mb},disk_mb={resources.disk_mb}"
        " python -m headroom.measure.reading"
        " --config {input.config} --checkpoint {input.checkpoint} --task-sets {input.task_sets}"
        " --output {params.folder} 2>&1 | tee {log}"
