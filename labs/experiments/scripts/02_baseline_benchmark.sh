#!/bin/sh
exec "$(dirname "$(readlink -f "$0")")/../../run-lab" experiments 2 "$@"
