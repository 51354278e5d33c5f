#!/usr/bin/env python3
import os, sys

os.execv(os.path.join(os.path.dirname(os.path.realpath(__file__)), "00_check_env"), sys.argv)
