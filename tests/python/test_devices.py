"""Candidates are measured on the GPU that the module is on, whatever CUDA's numbers are. With a driver of our own."""

import json
import os
import re
import subprocess
import sys

import pytest
import torch
from conftest import BUILD
from torch import nn

import equiforge
from equiforge import EquiForgeError, _cuda, _native, worker

# As the driver names their folders, in no order: two models, and a GPU that nobody optimises for.
GPUS = {
    "0000:5e:00.0": ("NVIDIA A100-SXM4-80GB", "GPU-aaaa1111-0000"),
    "0000:03:00.0": ("NVIDIA H200", "GPU-bbbb2222-0000"),
    "0000:af:00.0": ("NVIDIA H200", "GPU-bbbb3333-0000"),
    "0001:01:00.0": ("Quadro K620", "GPU-cccc4444-0000"),
}

# CUDA's order is that of ORDER, upper case and with a long domain.
DRIVER = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static const char *at(int n)
{
    const char *all = getenv("ORDER");
    while (n-- && all)
        all = strchr(all, ',') ? strchr(all, ',') + 1 : NULL;
    return all;
}
int cuInit(unsigned flags) { return flags; }
int cuDeviceGetCount(int *count) { for (*count = 0; at(*count); ++*count); return 0; }
int cuDeviceGet(int *device, int n) { *device = 40 + n; return 0; }
int cuDeviceGetName(char *text, int room, int device) { snprintf(text, room, "GPU %d", device); return 0; }
int cuDeviceGetPCIBusId(char *text, int room, int device)
{
    snprintf(text, room, "0000%.12s", at(device - 40));
    return 0;
}
"""

# Stands for the Python of workers: says versions, keeps what it was started with, and ends.
RECORDER = """#!/bin/sh
case "$*" in
*importlib.metadata*) echo "torch 2.9, triton 3.5" ;;
*) echo "$*" >> {log}; exit 1 ;;
esac
"""


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """The driver's files, and a Python that records how workers are started; gives what was recorded."""
    for place, (model, uuid) in GPUS.items():
        (tmp_path / "gpus" / place).mkdir(parents=True)
        text = f"Model: \t\t {model}\nIRQ:   \t\t 39\nGPU UUID: \t {uuid}\nBus Location: \t {place}\n"
        (tmp_path / "gpus" / place / "information").write_text(text)
    recorder, log = tmp_path / "recorder", tmp_path / "log"
    recorder.write_text(RECORDER.format(log=log))
    recorder.chmod(0o755)
    monkeypatch.setenv("EQUIFORGE_TEST_GPUS", str(tmp_path / "gpus"))
    monkeypatch.setenv("EQUIFORGE_PYTHON", str(recorder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return lambda: set(re.findall(r"--device (\S+)", log.read_text()))


@pytest.fixture
def driver(monkeypatch, tmp_path):
    (tmp_path / "driver.c").write_text(DRIVER)
    library = tmp_path / "libcuda.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", tmp_path / "driver.c", "-o", library], check=True)
    monkeypatch.setattr(_cuda, "DRIVER", str(library))
    order = ("0000:AF:00.0", "0000:03:00.0", "0000:5E:00.0")
    monkeypatch.setenv("ORDER", ",".join(order))
    return [_cuda.normal(place) for place in order]


def available() -> set[str]:
    out = subprocess.run([BUILD / "equiforge", "targets", "--json"], capture_output=True, check=True).stdout
    return {target["name"] for target in json.loads(out)["targets"] if target["available"]} - {"interpreter"}


@pytest.mark.parametrize(
    ("shown", "there"),
    [
        (None, {"cpu", "a100", "h200"}),
        ("", {"cpu"}),
        ("-1", {"cpu"}),
        ("1", {"cpu", "a100"}),
        (" 1, 0", {"cpu", "a100", "h200"}),
        ("0,9,1", {"cpu", "h200"}),
        ("GPU-bbbb", {"cpu", "h200"}),
        ("GPU-AAAA1111-0000", {"cpu", "a100"}),
        ("GPU-dddd,0", {"cpu"}),
        ("3", {"cpu"}),
        ("MIG-bbbb2222-0000", {"cpu", "a100", "h200"}),
    ],
)
def test_what_is_shown(machine, monkeypatch, shown, there):
    if shown is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
    assert available() == there


def tune(tmp_path, **options):
    source = tmp_path / "p.ef"
    source.write_text("program p\ndim m = 4\ninput x: f32[m]\noutput y = exp(x)\n")
    return _native.optimize(source, tmp_path / "p.efz", budget_s=5, **options)


@pytest.mark.parametrize(
    ("gpu", "target", "wanted"),
    [
        ("0000:af:00.0", "auto", "0000:af:00.0"),
        ("00000000:AF:00.0", "h200", "0000:af:00.0"),
        ("0000:5e:00.0", "auto", "0000:5e:00.0"),
        (None, "h200", "0000:03:00.0"),
        (None, "a100", "0000:5e:00.0"),
    ],
)
def test_workers_of_a_gpu(machine, tmp_path, gpu, target, wanted):
    assert tune(tmp_path, gpu=gpu, target=target)["kept"] == 1
    assert machine() == {wanted}


@pytest.mark.parametrize("place", ["0000:03:00.0", "0000:af:00.0"])
def test_a_place_is_what_cuda_says(machine, tmp_path, monkeypatch, place):
    """CUDA's first GPU is the fastest, or the first of those that a container has."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert tune(tmp_path, gpu=place, target="h200")["kept"] == 1
    assert machine() == {place}


def test_gpus_that_will_not_do(machine, tmp_path, monkeypatch):
    for gpu, target, words in (
        ("0001:01:00.0", "auto", "none that can be optimised for"),
        ("0000:99:00.0", "auto", "none that can be optimised for"),
        ("0000:5e:00.0", "h200", "no H200"),
        ("nonsense", "h200", "no H200"),
        (None, "b200", "no b200"),
    ):
        with pytest.raises(EquiForgeError, match=words):
            tune(tmp_path, gpu=gpu, target=target)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    with pytest.raises(EquiForgeError, match="no h200"):
        tune(tmp_path, target="h200")


def test_numbers(driver, monkeypatch):
    assert _cuda.places() == driver == ["0000:af:00.0", "0000:03:00.0", "0000:5e:00.0"]
    assert [gpu.model for gpu in _cuda.gpus()] == ["GPU 40", "GPU 41", "GPU 42"]
    assert [_cuda.place_of(n) for n in range(3)] == driver
    assert [_cuda.number_of(place) for place in ("0000:5E:00.0", "00000000:03:00.0")] == [2, 1]
    with pytest.raises(EquiForgeError, match="no cuda:3"):
        _cuda.place_of(3)
    with pytest.raises(EquiForgeError, match="shows no GPU at 0000:99:00.0"):
        _cuda.number_of("0000:99:00.0")
    for bad in ("", "3", "GPU-1", "0000:5e:00.0.0", "0000:5e:00"):
        with pytest.raises(EquiForgeError, match="no place"):
            _cuda.normal(bad)
    monkeypatch.setattr(_cuda, "DRIVER", "libnowhere.so.1")
    with pytest.raises(EquiForgeError, match="no CUDA driver"):
        _cuda.places()


def test_worker_finds_its_gpu(driver, monkeypatch):
    """Its numbers may be others than those of the process that started it."""
    seen = []
    monkeypatch.setattr(worker, "serve", lambda one, *_: seen.append(one.device) or 0)
    monkeypatch.setattr(os, "dup2", lambda *_: None)
    for order, number in (("0000:5E:00.0,0000:03:00.0", 0), ("0000:03:00.0,0000:5E:00.0", 1)):
        monkeypatch.setenv("ORDER", order)
        monkeypatch.setattr(sys, "argv", ["worker", "--device", "0000:5e:00.0"])
        assert worker.main() == 0
        assert seen[-1] == torch.device("cuda", number)


def test_module_on_a_gpu(driver, monkeypatch):
    """What optimize asks for is the place of the module's GPU."""
    from equiforge import _optimize

    asked = {}

    def native(*_, **options):
        asked.update(options)
        raise EquiForgeError("far enough")

    monkeypatch.setattr(_native, "optimize", native)
    monkeypatch.setattr("equiforge._module.device_of", lambda *_: torch.device("cuda", 2))
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda _: False)
    block, x = nn.Linear(8, 8).eval(), torch.ones(2, 8)
    with pytest.raises(EquiForgeError, match="far enough"):
        _optimize.optimize(block, (x,))
    assert (asked["target"], asked["gpu"]) == ("auto", "0000:5e:00.0")
    with pytest.raises(EquiForgeError, match="on cuda:2, which is no target 'cpu'"):
        equiforge.optimize(block, (x,), target="cpu")
    monkeypatch.undo()
    with pytest.raises(EquiForgeError, match="on cpu, which is no target 'h200'"):
        equiforge.optimize(block, (x,), target="h200")
