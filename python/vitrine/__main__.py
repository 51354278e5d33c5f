"""python -m vitrine: the program that came with this package."""
import os
import sys

from ._program import program

path = program()
os.execv(path, [path, *sys.argv[1:]])
