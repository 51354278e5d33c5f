#!/bin/sh
# The familiar name: the lab, and the same load under nsys where that is installed.
. "$(dirname "$0")/_vitrine.sh" && exec "$vitrine" lab sglang 04 --nsys "$@"
