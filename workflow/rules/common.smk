import sys
from pathlib import Path

sys.path.insert(0, str(Path(workflow.basedir, "src")))

from headroom.cluster.start import before_jobs, before_rollouts
from headroom.config import resolve as configuration
from headroom.config.workflow import any_of, load, options, prelude
from headroom.provenance.closure import Lists

CONDA = "conda" in map(str, workflow.deployment_settings.deployment_method)
try:
    WORKFLOW = load(config, Path(workflow.basedir))
except configuration.ConfigError as error:
    sys.exit(f"headroom: {error}")

shell.prefix(prelude(WORKFLOW.scale, conda=CONDA))

closure = Lists(Path(workflow.basedir), f"results/{WORKFLOW.scale}/config/sources")


pathvars:
    results=f"results/{WORKFLOW.scale}",
    config=f"results/{WORKFLOW.scale}/config",
    figures=f"figures/{WORKFLOW.scale}",
    logs=f"results/{WORKFLOW.scale}/logs",


wildcard_constraints:
    init=any_of(WORKFLOW.resolved.inits),
    run=any_of(WORKFLOW.init_of),
    policy=any_of(WORKFLOW.resolved.policies),
    figure=any_of(WORKFLOW.figures),


onstart:
    before_jobs(
        workflow.executor_plugin.name,
        getattr(workflow.executor_settings, "status_command", None),
    )
    before_rollouts(WORKFLOW, Path(workflow.basedir), conda=CONDA)
