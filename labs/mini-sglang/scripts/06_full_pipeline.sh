#!/bin/sh
. "$(dirname "$0")/_vitrine.sh"
exec "$VITRINE" lab mini-sglang 06 "$@"
