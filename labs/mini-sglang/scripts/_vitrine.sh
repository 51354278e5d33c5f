# Finds the program for the scripts beside this file: $VITRINE, else build/vitrine in a folder above, else on PATH.
_at=$(cd "$(dirname "$0")" && pwd)
while [ -z "$VITRINE" ] && [ "$_at" != / ]; do
    [ -x "$_at/build/vitrine" ] && VITRINE=$_at/build/vitrine
    _at=$(dirname "$_at")
done
VITRINE=${VITRINE:-vitrine}
