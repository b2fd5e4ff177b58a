"""Which GPU is which: CUDA counts those that CUDA_VISIBLE_DEVICES shows, in an order of its own; places on the bus are
the same in every process."""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass

from equiforge._native import EquiForgeError

DRIVER = "libcuda.so.1"


def normal(place: str) -> str:
    """ "00000000:3B:00.0" and "0000:3b:00.0" are one place. EquiForgeError for what is none."""
    found = re.fullmatch(r"([0-9a-f]{1,8}):([0-9a-f]{1,2}):([0-9a-f]{1,2})\.([0-9a-f])", place.strip().lower())
    if not found:
        raise EquiForgeError(f"{place!r} is no place of a GPU on the bus")
    domain, bus, device, function = (int(part, 16) for part in found.groups())
    return f"{domain:04x}:{bus:02x}:{device:02x}.{function:x}"


@dataclass(frozen=True)
class Gpu:
    place: str  # on the bus
    model: str  # "NVIDIA H200"


def gpus() -> list[Gpu]:
    """The GPUs that this process sees, in CUDA's order, which is PyTorch's; makes no context.

    EquiForgeError without a driver.
    """
    try:
        driver = ctypes.CDLL(DRIVER)
    except OSError as problem:
        raise EquiForgeError(f"there is no CUDA driver: {problem}") from problem

    def ask(name: str, *arguments: object) -> None:
        status = getattr(driver, name)(*arguments)
        if status:
            raise EquiForgeError(f"the CUDA driver's {name} gives error {status}")

    count = ctypes.c_int()
    ask("cuInit", ctypes.c_uint(0))
    ask("cuDeviceGetCount", ctypes.byref(count))
    found = []
    for number in range(count.value):
        device, place, model = ctypes.c_int(), ctypes.create_string_buffer(64), ctypes.create_string_buffer(256)
        ask("cuDeviceGet", ctypes.byref(device), ctypes.c_int(number))
        ask("cuDeviceGetPCIBusId", place, ctypes.c_int(len(place)), device)
        ask("cuDeviceGetName", model, ctypes.c_int(len(model)), device)
        found.append(Gpu(normal(place.value.decode()), model.value.decode()))
    return found


def places() -> list[str]:
    """The places of `gpus`."""
    return [gpu.place for gpu in gpus()]


def place_of(number: int) -> str:
    """The place of cuda:NUMBER. EquiForgeError when there is none."""
    found = places()
    if number >= len(found):
        raise EquiForgeError(f"there is no cuda:{number}: CUDA shows {len(found)} GPUs")
    return found[number]


def number_of(place: str) -> int:
    """N of cuda:N at this place. EquiForgeError when this process does not see it."""
    found, wanted = places(), normal(place)
    if wanted not in found:
        raise EquiForgeError(f"CUDA shows no GPU at {wanted}, but {', '.join(found) or 'none'}")
    return found.index(wanted)
