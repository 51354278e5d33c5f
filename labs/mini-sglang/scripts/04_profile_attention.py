#!/usr/bin/env python3
import os, sys

os.execv(os.path.join(os.path.dirname(os.path.realpath(__file__)), "04_profile_attention"), sys.argv)
