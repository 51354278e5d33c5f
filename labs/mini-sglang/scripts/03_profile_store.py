#!/usr/bin/env python3
import _vitrine

_vitrine.lab("mini-sglang", "03")
