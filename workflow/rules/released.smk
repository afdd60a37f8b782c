rule released:
    """What this tier takes and does not make, from the release, each file held to its digest in results.lock."""
    input:
        archive=ancient(WORKFLOW.released.archive),
        sources=ancient(closure.sources("provenance.release")),
        environment=ancient("envs/audit.yaml"),
    output:
        [
            ensure(name, sha256=entry.sha256)
            for name, entry in WORKFLOW.released.files.items()
        ],
        [directory(folder) for folder in WORKFLOW.released.folders],
    log:
        "<logs>/released.log",
    conda:
        "../../envs/audit.yaml"
    threads: WORKFLOW.resources("released").threads
    resources:
        mem_mb=WORKFLOW.resources("released").mem_mb,
        runtime=WORKFLOW.resources("released").runtime,
        disk_mb=WORKFLOW.resources("released").disk_mb,
        gpu=0,
    params:
        scale=WORKFLOW.scale,
        tier=WORKFLOW.resolved.settings.tier,
    shell:
        "HEADROOM_ASKED=released:gpu={resources.gpu},disk_mb={resources.disk_mb}"
        " python -m headroom.cli unpack {input.archive} --force --scale {params.scale} --tier {params.tier}"
        " 2>&1 | tee {log}"
