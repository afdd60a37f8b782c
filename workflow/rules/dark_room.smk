rule dark_room:
    """The endpoint of every arm from its validation, how its episodes went, and whether anything warned of a collapse."""
    input:
        config="<config>/dark_room.json",
        runs=expand("<results>/grpo/{run}/manifest.json", run=WORKFLOW.init_of),
        tables=ancient(
            expand(
                "<results>/grpo/{run}/{table}.parquet",
                run=WORKFLOW.init_of,
                table=["steps", "validation"],
            )
        ),
        sources=closure.sources("measure.dark_room"),
        environment="envs/analysis.yaml",
    output:
        arms="<results>/dark_room/dark_room.csv",
        validation="<results>/dark_room/validation.csv",
        signs="<results>/dark_room/signs.csv",
        failing_groups="<results>/dark_room/failing_groups.csv",
        manifest="<results>/dark_room/manifest.json",
        record="<results>/dark_room/run.json",
    log:
        "<logs>/dark_room.log",
    conda:
        "../../envs/analysis.yaml"
    threads: WORKFLOW.resources("dark_room").threads
    resources:
        mem_mb=WORKFLOW.resources("dark_room").mem_mb,
        runtime=WORKFLOW.resources("dark_room").runtime,
        disk_mb=WORKFLOW.resources("dark_room").disk_mb,
        gpu=WORKFLOW.resources("dark_room").gpu,
    params:
        runs=lambda wildcards, input: [
            str(Path(manifest).parent) for manifest in input.runs
        ],
        folder=subpath(output.manifest, parent=True),
    shell:
        "HEADROOM_ASKED=dark_room:gpu={resources.gpu},disk_mb={resources.disk_mb}"
        " python -m headroom.measure.dark_room"
        " --config {input.config} --output {params.folder} -- {params.runs} 2>&1 | tee {log}"
