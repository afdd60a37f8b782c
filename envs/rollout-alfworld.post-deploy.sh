#!/usr/bin/env bash
# Written by tools/lock.py from requirements/alfworld.txt, which says why --no-deps. A compiler and make are needed.
set -euo pipefail
LDFLAGS=-s python -m pip install --no-deps alfworld==0.4.2 fast-downward-textworld==20.6.4 mementos==1.3.1 tatsu==5.8.3 textworld==1.7.0
