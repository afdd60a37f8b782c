#!/usr/bin/env bash
# Run the study at one scale on this machine: study.sh SCALE [targets and snakemake options]
# After an interruption, even a kill -9, the same command goes on where it stopped.
set -euo pipefail
cd "$(dirname "$0")/.."
scale=${1:?usage: tools/study.sh SCALE [targets and snakemake options]}
shift
# A job plays pages half of its time and waits for the browser in between: three jobs on two cores end an eighth sooner
# than two. As many as the memory holds, the container's where it has a limit of its own.
cores=$(getconf _NPROCESSORS_ONLN)
jobs=${JOBS:-$((cores + cores / 2))}
if [[ ! $jobs =~ ^([1-9][0-9]*|all)$ ]]; then
    echo "JOBS=$jobs: is no number of jobs; give one from 1 on, or none for $((cores + cores / 2))" >&2
    exit 2
fi
memory=$(($(getconf _PHYS_PAGES) * ($(getconf PAGE_SIZE) / 1024) / 1024))
if read -r limit 2>/dev/null </sys/fs/cgroup/memory.max && [ "$limit" != max ] && [ $((limit >> 20)) -lt "$memory" ]; then
    memory=$((limit >> 20))
fi

# A lock of the kernel instead of Snakemake's lock files: it cannot outlive its holders, this shell and its Snakemake.
mkdir -p .snakemake
exec 9>.snakemake/study.lock
if command -v flock >/dev/null; then
    if ! flock --nonblock 9; then
        echo "another run of the study is going on in this folder; wait for it, or end it first" >&2
        exit 1
    fi
    # A job outlives a Snakemake that was killed, and meanwhile refuses a second process at its output.
    for lock in results/"$scale"/.scratch/*.lock; do
        if [ -e "$lock" ] && ! flock --nonblock "$lock" true; then
            name=${lock##*/}
            echo "waiting for a job of an interrupted run that is still at work: ${name%.lock}" >&2
            flock "$lock" true
        fi
    done
fi

# Of an option given twice Snakemake takes the last alone: what the user sets goes in with what is set here.
settings=() limits=("mem_mb=$memory") words=() kind=words
for word in "$@"; do
    case $word in
        --config | -C) kind=settings ;;
        --resources | --res) kind=limits ;;
        --config=*) kind=settings settings+=("${word#*=}") ;;
        --resources=* | --res=*) kind=limits limits+=("${word#*=}") ;;
        -*) kind=words words+=("$word") ;;
        *)
            case $kind in
                settings) settings+=("$word") ;;
                limits) limits+=("$word") ;;
                *) words+=("$word") ;;
            esac
            ;;
    esac
done

started=$SECONDS
# Jobs of one processor each need no solver to be chosen among, and it would be started at every job's end.
# The limit itself is never reached. By default Snakemake 9 weighs all waiting jobs again a second after each time it has
# done so, once more for every job that has ended: a third of a core by the end. Ten seconds make that a thirtieth.
.venv/bin/snakemake --cores "$jobs" --resources "${limits[@]}" --scheduler greedy --max-jobs-per-timespan 1000/10s \
    "${words[@]}" --nolock --rerun-incomplete --keep-going --quiet rules host reason \
    --config "${settings[@]}" scale="$scale" 2>&1 | .venv/bin/python tools/progress.py 9>&- && status=0 || status=$?
if [ "$status" != 0 ]; then
    echo "the study did not finish; what failed and why: .venv/bin/headroom runs --scale $scale, results/$scale/logs/" >&2
    exit "$status"
fi
printf '\nDone in %d min %d s.\n' $(((SECONDS - started) / 60)) $(((SECONDS - started) % 60))
PYTHONPATH=src .venv/bin/headroom summary --scale "$scale"
