"""Where and in what models compute is a setting of the machine, never of a release."""

import pytest

from dptext_etl import device as devices
from dptext_etl.errors import PolicyError
from dptext_etl_models.inference.language_model import limit_threads


@pytest.fixture(autouse=True)
def _fresh(monkeypatch):
    monkeypatch.delenv(devices.SETTING, raising=False)
    monkeypatch.delenv(devices.DTYPE_SETTING, raising=False)


def test_cpu_is_cpu_without_a_look_at_torch(monkeypatch):
    monkeypatch.setenv(devices.SETTING, " CPU ")
    monkeypatch.setattr(devices, "sees_gpu", lambda _: pytest.fail("torch was looked for"))
    assert devices.device() == "cpu"


@pytest.mark.parametrize(("sees", "expected"), [(True, "cuda"), (False, "cpu")])
def test_auto_chooses_among_the_devices_that_there_are(monkeypatch, sees, expected):
    monkeypatch.setattr(devices, "sees_gpu", lambda _: sees)
    assert devices.device() == expected


@pytest.mark.parametrize(("setting", "value", "ask", "said"), [
    (devices.SETTING, "cuda", devices.device, "sees no GPU"),
    (devices.SETTING, "tpu", devices.device, "auto, cpu or cuda"),
    (devices.DTYPE_SETTING, "float16", lambda: devices.dtype("cpu"), "auto, float32 or bfloat16"),
])  # fmt: skip
def test_any_other_setting_is_refused(monkeypatch, setting, value, ask, said):
    monkeypatch.setenv(setting, value)
    monkeypatch.setattr(devices, "sees_gpu", lambda _: False)
    with pytest.raises(PolicyError, match=said):
        ask()


@pytest.mark.parametrize("asked", ["float32", "bfloat16"])
def test_a_dtype_that_is_asked_for_is_used_without_a_look_at_the_hardware(monkeypatch, asked):
    monkeypatch.setenv(devices.DTYPE_SETTING, asked.upper())
    monkeypatch.setattr(devices, "cpu_has_bf16", lambda: pytest.fail("the CPU was looked at"))
    assert devices.dtype("cpu") == asked


@pytest.mark.parametrize(("has", "expected"), [(True, "bfloat16"), (False, "float32")])
def test_auto_takes_bfloat16_where_the_hardware_computes_it(monkeypatch, has, expected):
    monkeypatch.setattr(devices, "cpu_has_bf16", lambda: has)
    monkeypatch.setattr(devices, "gpu_has_bf16", lambda: not has)
    assert devices.dtype("cpu") == expected
    monkeypatch.setattr(devices, "device", lambda: "cpu")
    assert devices.dtype() == expected


@pytest.mark.parametrize(("device", "dtype", "auto", "said"), [
    (None, None, ("device", "dtype"), "cpu, in bfloat16 (auto chose device and dtype)"),
    (None, "float32", ("device",), "cpu, in float32 (auto chose device)"),
    ("cpu", "Auto", ("dtype",), "cpu, in bfloat16 (auto chose dtype)"),
    ("CPU", "bfloat16", (), "cpu, in bfloat16"),
])  # fmt: skip
def test_what_auto_chose_is_said(monkeypatch, device, dtype, auto, said):
    monkeypatch.setattr(devices, "sees_gpu", lambda _: False)
    monkeypatch.setattr(devices, "cpu_has_bf16", lambda: True)
    for setting, value in ((devices.SETTING, device), (devices.DTYPE_SETTING, dtype)):
        if value is not None:
            monkeypatch.setenv(setting, value)
    found = devices.computing()
    assert (found.auto, str(found)) == (auto, said)
    assert devices.Computing(**found.as_dict()).as_dict() == found.as_dict()


@pytest.mark.parametrize(("flags", "has"), [
    ("flags : fpu avx512f avx512_bf16 avx512_vnni", True), ("flags : fpu amx_bf16 amx_tile", True),
    ("Features : fp asimd bf16 i8mm", True), ("flags : fpu avx2 avx512f avx512bw", False), (None, False),
])  # fmt: skip
def test_the_listing_of_a_cpu_says_whether_it_computes_bfloat16(tmp_path, flags, has):
    """A machine without a listing counts as one without bfloat16."""
    listing = tmp_path / "cpuinfo"
    if flags is not None:
        listing.write_text(f"processor : 0\n{flags}\n")
    devices.cpu_has_bf16.cache_clear()
    assert devices.cpu_has_bf16(str(listing)) is has
    devices.cpu_has_bf16.cache_clear()


@pytest.mark.parametrize(("asked", "threads"), [("1", 1), ("", None), ("0", None), ("many", None)])
def test_torch_takes_the_threads_that_the_kernel_takes(monkeypatch, asked, threads):
    torch = pytest.importorskip("torch")
    said = []
    monkeypatch.setattr(torch, "set_num_threads", said.append)
    monkeypatch.setenv(devices.THREADS_SETTING, asked)
    limit_threads()
    assert said == ([] if threads is None else [threads])
