rule evaluate:
    """Every policy plays the same evaluation pages, greedily and, where the plan says so, sampled."""
    input:
        config="<config>/evaluate/{policy}.json",
        trained=lambda wildcards: f"<results>/{WORKFLOW.stage_of[wildcards.policy]}/{wildcards.policy}/manifest.json",
        checkpoint=ancient(
            lambda wildcards: f"<results>/{WORKFLOW.stage_of[wildcards.policy]}/{wildcards.policy}/checkpoint"
        ),
        task_sets="<results>/select/task_sets.json",
        sources=closure.sources("measure.evaluate"),
        games=WORKFLOW.games,
        environment=WORKFLOW.environment("train"),
    output:
        episodes="<results>/evaluate/{policy}/episodes.parquet",
        manifest="<results>/evaluate/{policy}/manifest.json",
        record="<results>/evaluate/{policy}/run.json",
    log:
        "<logs>/evaluate/{policy}.log",
    conda:
        WORKFLOW.conda("train")
    threads: WORKFLOW.resources("evaluate").threads
    resources:
        mem_mb=WORKFLOW.resources("evaluate").mem_mb,
        runtime=WORKFLOW.resources("evaluate").runtime,
        disk_mb=WORKFLOW.resources("evaluate").disk_mb,
        gpu=WORKFLOW.resources("evaluate").gpu,
        gpu_mem_mb=WORKFLOW.resources("evaluate").gpu_mem_mb,
    params:
        folder=subpath(output.manifest, parent=True),
    shell:
        "HEADROOM_ASKED=evaluate:gpu={resources.gpu},gpu_mem_mb={resources.gpu_mem_mb},disk_mb={resources.disk_mb}"
        " python -m headroom.measure.evaluate"
        " --config {input.config} --checkpoint {input.checkpoint} --task-sets {input.task_sets}"
        " --output {params.folder} 2>&1 | tee {log}"
