rule grpo:
    """One run of the grid. A killed job resumes from its own folder and ends in the same bytes."""
    input:
        config="<config>/grpo/{run}.json",
        supervised=lambda wildcards: f"<results>/sft/{WORKFLOW.init_of[wildcards.run]}/manifest.json",
        checkpoint=ancient(
            lambda wildcards: f"<results>/sft/{WORKFLOW.init_of[wildcards.run]}/checkpoint"
        ),
        task_sets="<results>/select/task_sets.json",
        sources=closure.sources("train.grpo"),
        games=WORKFLOW.games,
        environment=WORKFLOW.environment("train", samples=True),
    output:
        checkpoint=directory("<results>/grpo/{run}/checkpoint"),
        adapter=(
            directory("<results>/grpo/{run}/adapter")
            if WORKFLOW.adapters("grpo")
            else []
        ),
        steps="<results>/grpo/{run}/steps.parquet",
        validation=(
            "<results>/grpo/{run}/validation.parquet"
            if WORKFLOW.resolved.validates
            else []
        ),
        manifest="<results>/grpo/{run}/manifest.json",
        record="<results>/grpo/{run}/run.json",
    log:
        "<logs>/grpo/{run}.log",
    # First what most hangs on, so that no long chain is left for the end.
    priority: lambda wildcards: 2 if wildcards.run in WORKFLOW.resolved.mechanism.grafted else 1
    conda:
        WORKFLOW.conda("train", samples=True)
    threads: WORKFLOW.resources("grpo").threads
    resources:
        mem_mb=WORKFLOW.resources("grpo").mem_mb,
        runtime=WORKFLOW.resources("grpo").runtime,
        disk_mb=WORKFLOW.resources("grpo").disk_mb,
        gpu=WORKFLOW.resources("grpo").gpu,
        gpu_mem_mb=WORKFLOW.resources("grpo").gpu_mem_mb,
    params:
        launcher=lambda wildcards: WORKFLOW.launcher_of[wildcards.run],
        folder=subpath(output.manifest, parent=True),
    shell:
        WORKFLOW.first_on_path
        + "HEADROOM_ASKED=grpo:gpu={resources.gpu},gpu_mem_mb={resources.gpu_mem_mb},disk_mb={resources.disk_mb}"
        " {params.launcher} -m headroom.train.grpo"
        " --config {input.config} --init {input.checkpoint} --task-sets {input.task_sets}"
        " --output {params.folder} 2>&1 | tee {log}"
