"""The table of GPUs: the numbers that lessons name, and what follows from all of them."""

import pytest

from helpers import timing
from helpers.gpu.architectures import ARCHITECTURES
from helpers.gpu.datasheets import DATASHEETS, ENOUGH_PROGRAMS, PEAK_GBPS, Datasheet, gpus_of, sold_as


def test_an_h200_is_what_the_lessons_say():
    assert DATASHEETS["H200"] == Datasheet("sm_90", multiprocessors=132, l2_bytes=60 * 2**20)


@pytest.mark.parametrize(
    ("gpu", "multiprocessors", "l2_mb"),
    [("A100", 108, 40), ("RTX 4090", 128, 72), ("H100", 132, 50), ("B200", 148, 126), ("RTX 5090", 170, 96)],
)
def test_the_others_are_what_their_sources_say(gpu, multiprocessors, l2_mb):
    assert (DATASHEETS[gpu].multiprocessors, DATASHEETS[gpu].l2_bytes) == (multiprocessors, l2_mb * 2**20)


def test_every_gpu_has_an_architecture_whose_limits_are_known():
    assert {sheet.architecture for sheet in DATASHEETS.values()} <= set(ARCHITECTURES)


def test_enough_programs_is_the_power_of_two_above_the_most_multiprocessors():
    most = max(sheet.multiprocessors for sheet in DATASHEETS.values())
    assert 1 << most.bit_length() == ENOUGH_PROGRAMS


def test_a_flush_overwrites_every_gpu_s_l2():
    assert timing._FLUSH > max(sheet.l2_bytes for sheet in DATASHEETS.values())


def test_gpus_go_by_their_architecture():
    assert gpus_of("sm_90") == ["H100", "H200"] and gpus_of("sm_75") == []


@pytest.mark.parametrize(
    ("gpu", "name"),
    [
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("Tesla T4", "T4"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA L40S", None),
        ("NVIDIA GB200", None),
    ],
)
def test_a_gpu_is_known_by_the_name_in_its_driver_s_name(gpu, name):
    assert sold_as(gpu) == name


def test_every_gpu_of_the_table_has_a_peak():
    assert set(DATASHEETS) <= set(PEAK_GBPS)
