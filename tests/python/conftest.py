"""The Python package, from the source tree and the build folder (EQUIFORGE_BUILD, else `build`)."""

import os
import sys
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("EQUIFORGE_BUILD", "build")
os.environ["EQUIFORGE_BUILD"] = str(BUILD)
sys.path[:0] = [str(ROOT / "python"), str(ROOT)]
# Processes that tests start see the same package.
os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "python"), str(ROOT)])

# Triton decides while it is imported whether it interprets. With a GPU, tests run on that.
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
