rule sft:
    """Supervised fine-tuning on the action tokens of the demonstrations: one job an initialisation."""
    input:
        config="<config>/sft/{init}.json",
        demonstrations="<results>/demonstrations/manifest.json",
        table=ancient("<results>/demonstrations/demonstrations.parquet"),
        model=WORKFLOW.model_files,
        sources=closure.sources("train.sft"),
        environment="envs/train.yaml",
    output:
        checkpoint=directory("<results>/sft/{init}/checkpoint"),
        adapter=(
            directory("<results>/sft/{init}/adapter")
            if WORKFLOW.adapters("sft")
            else []
        ),
        steps="<results>/sft/{init}/steps.parquet",
        manifest="<results>/sft/{init}/manifest.json",
        record="<results>/sft/{init}/run.json",
    log:
        "<logs>/sft/{init}.log",
    conda:
        "../../envs/train.yaml"
    threads: WORKFLOW.resources("sft").threads
    resources:
        mem_mb=WORKFLOW.resources("sft").mem_mb,
        runtime=WORKFLOW.resources("sft").runtime,
        disk_mb=WORKFLOW.resources("sft").disk_mb,
        gpu=WORKFLOW.resources("sft").gpu,
        gpu_mem_mb=WORKFLOW.resources("sft").gpu_mem_mb,
    params:
        launcher=lambda wildcards: WORKFLOW.launcher_of[wildcards.init],
        demonstrations=subpath(input.table, parent=True),
        folder=subpath(output.manifest, parent=True),
    shell:
        "HEADROOM_ASKED=sft:gpu={resources.gpu},gpu_mem_mb={resources.gpu_mem_mb},disk_mb={resources.disk_mb}"
        " {params.launcher} -m headroom.train.sft"
        " --config {input.config} --demonstrations {params.demonstrations} --output {params.folder} 2>&1 | tee {log}"
