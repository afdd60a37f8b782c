rule probe:
    """The supervised policy's own greedy turns on the reading's pages: what every checkpoint reads when it is measured."""
    input:
        config="<config>/probe.json",
        supervised="<results>/sft/sft/manifest.json",
        checkpoint=ancient("<results>/sft/sft/checkpoint"),
        reading="<results>/reading/manifest.json",
        episodes=ancient("<results>/reading/episodes.parquet"),
        task_sets="<results>/select/task_sets.json",
        sources=closure.sources("measure.probe"),
        games=WORKFLOW.games,
        environment=WORKFLOW.environment("train"),
    output:
        turns="<results>/probe/probe.parquet",
        summary="<results>/probe/probe.json",
        manifest="<results>/probe/manifest.json",
        record="<results>/probe/run.json",
    log:
        "<logs>/probe.log",
    conda:
        WORKFLOW.conda("train")
    threads: WORKFLOW.resources("probe").threads
    resources:
        mem_mb=WORKFLOW.resources("probe").mem_mb,
        runtime=WORKFLOW.resources("probe").runtime,
        disk_mb=WORKFLOW.resources("probe").disk_mb,
        gpu=WORKFLOW.resources("probe").gpu,
    params:
        reading=subpath(input.reading, parent=True),
        folder=subpath(output.manifest, parent=True),
    shell:
        "HEADROOM_ASKED=probe:gpu={resources.gpu},disk_mb={resources.disk_mb}"
        " python -m headroom.measure.probe"
        " --config {input.config} --checkpoint {input.checkpoint} --reading {params.reading}"
        " --task-sets {input.task_sets} --output {params.folder} 2>&1 | tee {log}"


rule rank:
    """Effective rank of hidden states by block, agreement with the policy it started from, movement of the weights.

    A run that trained an adapter is read from it, not from the merged checkpoint: its updates are exact products.
    """
    input:
        config="<config>/rank/{policy}.json",
        trained=lambda wildcards: f"<results>/{WORKFLOW.stage_of[wildcards.policy]}/{wildcards.policy}/manifest.json",
        checkpoint=ancient(
            lambda wildcards: f"<results>/{WORKFLOW.stage_of[wildcards.policy]}/{wildcards.policy}/{WORKFLOW.weights_of[wildcards.policy]}"
        ),
        started=lambda wildcards: f"<results>/sft/{WORKFLOW.reference_of[wildcards.policy]}/manifest.json",
        reference=ancient(
            lambda wildcards: f"<results>/sft/{WORKFLOW.reference_of[wildcards.policy]}/checkpoint"
        ),
        probe="<results>/probe/manifest.json",
        turns=ancient("<results>/probe/probe.parquet"),
        sources=closure.sources("measure.rank"),
        environment="envs/train.yaml",
    output:
        rank="<results>/rank/{policy}/rank.csv",
        agreement="<results>/rank/{policy}/agreement.csv",
        drift="<results>/rank/{policy}/drift.csv",
        manifest="<results>/rank/{policy}/manifest.json",
        record="<results>/rank/{policy}/run.json",
    log:
        "<logs>/rank/{policy}.log",
    conda:
        "../../envs/train.yaml"
    threads: WORKFLOW.resources("rank").threads
    resources:
        mem_mb=WORKFLOW.resources("rank").mem_mb,
        runtime=WORKFLOW.resources("rank").runtime,
        disk_mb=WORKFLOW.resources("rank").disk_mb,
        gpu=WORKFLOW.resources("rank").gpu,
        gpu_mem_mb=WORKFLOW.resources("rank").gpu_mem_mb,
    params:
        probe=subpath(input.probe, parent=True),
        folder=subpath(output.manifest, parent=True),
    shell:
        "HEADROOM_ASKED=rank:gpu={resources.gpu},gpu_mem_mb={resources.gpu_mem_mb},disk_mb={resources.disk_mb}"
        " python -m headroom.measure.rank"
        " --config {input.config} --checkpoint {input.checkpoint} --reference {input.reference}"
        " --probe {params.probe} --output {params.folder} 2>&1 | tee {log}"


rule graft:
    """Parameter groups moved between a run and the policy it started from, both ways, beside random controls.

    Of a run that trained an adapter: modules switched on and off.
    """
    input:
        config="<config>/graft/{run}.json",
        trained="<results>/grpo/{run}/manifest.json",
        checkpoint=ancient(
            lambda wildcards: f"<results>/grpo/{wildcards.run}/{WORKFLOW.weights_of[wildcards.run]}"
        ),
        started=lambda wildcards: f"<results>/sft/{WORKFLOW.init_of[wildcards.run]}/manifest.json",
        reference=ancient(
            lambda wildcards: f"<results>/sft/{WORKFLOW.init_of[wildcards.run]}/checkpoint"
        ),
        task_sets="<results>/select/task_sets.json",
        sources=closure.sources("measure.graft"),
        games=WORKFLOW.games,
        environment=WORKFLOW.environment("train"),
    output:
        episodes="<results>/graft/{run}/episodes.parquet",
        grafts="<results>/graft/{run}/grafts.csv",
        interactions="<results>/graft/{run}/interactions.csv",
        manifest="<results>/graft/{run}/manifest.json",
        record="<results>/graft/{run}/run.json",
    log:
        "<logs>/graft/{run}.log",
    priority: 1
    conda:
        WORKFLOW.conda("train")
    threads: WORKFLOW.resources("graft").threads
    resources:
        mem_mb=WORKFLOW.resources("graft").mem_mb,
        runtime=WORKFLOW.resources("graft").runtime,
        disk_mb=WORKFLOW.resources("graft").disk_mb,
        gpu=WORKFLOW.resources("graft").gpu,
        gpu_mem_mb=WORKFLOW.resources("graft").gpu_mem_mb,
    params:
        folder=subpath(output.manifest, parent=True),
    shell:
        "HEADROOM_ASKED=graft:gpu={resources.gpu},gpu_mem_mb={resources.gpu_mem_mb},disk_mb={resources.disk_mb}"
        " python -m headroom.measure.graft"
        " --config {input.config} --sft {input.reference} --rl {input.checkpoint} --task-sets {input.task_sets}"
        " --output {params.folder} 2>&1 | tee {log}"
